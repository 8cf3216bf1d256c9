"""libtmux's objects on a host's tmux: every command is a `tmux` request on the link.

libtmux 0.62 has no seam for this: three of its modules call `tmux_cmd(*words, tmux_bin=...)`. A stand-in
that looks at `tmux_bin` takes over for our names and leaves local use alone.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import libtmux
import libtmux.common
import libtmux.neo
import libtmux.server
from libtmux import exc

from dflash_supervise.link.errors import AgentRefusal

_SCHEME = "dflash://"
_SUPPORTED = "0.62."
_NO_TMUX = "tmux_missing"
_CALL_TIMEOUT_S = 20.0
_WIDTH, _HEIGHT = 200, 50
_NAME = re.compile(r"[a-z0-9_-]+")

log = logging.getLogger(__name__)

Request = Callable[[dict[str, Any], float], dict[str, Any]]

_requests: dict[str, Request] = {}
_lock = threading.Lock()
_local_tmux_cmd = libtmux.common.tmux_cmd


@dataclass(frozen=True, slots=True)
class SessionStart:
    """What came of starting a session.

    status: `started`, also in the dead pane of a session that was there; `already_there`, then nothing was
        changed; `no_tmux`: the host has none; `failed`.
    said: tmux's words when it was not started.
    """

    status: Literal["started", "already_there", "no_tmux", "failed"]
    name: str
    said: str = ""


def remote_server(host_key: str, uid: int, request: Request) -> libtmux.Server:
    """The tmux server of our own socket `dflash-<uid>` on a host.

    Nobody's own tmux server or configuration is touched.
    """
    name = _SCHEME + host_key
    _take_over()
    with _lock:
        if _requests.get(name) != request:
            # libtmux remembers the version by this name for ever; a new link may find a new tmux.
            libtmux.common.get_version.cache_clear()
            libtmux.common.get_version_str.cache_clear()
        _requests[name] = request
    return libtmux.Server(socket_name=f"dflash-{uid}", tmux_bin=name)


def session_name(run_id: str) -> str:
    """The tmux session of a run.

    Raises:
        ValueError: tmux would read the name as something else.
    """
    if not _NAME.fullmatch(run_id):
        raise ValueError(f"run id {run_id!r}: only a-z, 0-9, _ and - can name a tmux session")
    return f"dflash-{run_id}"


def start_session(server: libtmux.Server, run_id: str, argv: Sequence[str], *, cwd: str | None = None) -> SessionStart:
    """Start a detached session whose pane runs argv, in one command list; argv runs again where it has ended.

    Options that must hold from the pane's first moment are set before it: a pane that ends at once would
    otherwise take the server with it, and its last words. argv is several words, so no shell reads them.

    Raises:
        ValueError: a name or argv that tmux cannot take.
        LinkError: the link is down.
    """
    name = session_name(run_id)
    if len(argv) < 2:
        raise ValueError("argv needs at least two words: tmux gives a single one to a shell")
    folder = ["-c", _word(cwd)] if cwd else []
    commands = [
        ["start-server"],
        ["set-option", "-s", "exit-empty", "off"],
        ["set-option", "-s", "set-clipboard", "off"],
        ["set-option", "-g", "remain-on-exit", "on"],
        # Known from tmux 3.3 on; -q lets older ones pass over it.
        ["set-option", "-gwq", "allow-passthrough", "off"],
        ["new-session", "-d", "-s", name, "-x", str(_WIDTH), "-y", str(_HEIGHT), *folder, *map(_word, argv)],
    ]
    try:
        done = _run(server, commands)
        said = "\n".join(done.stderr)
        if done.returncode != 0 and "duplicate session" in said:
            # tmux refuses this for a pane that is alive, and for one that a person has closed.
            done = _run(server, [["respawn-pane", "-t", f"={name}:0.0", *folder, *map(_word, argv)]])
            if done.returncode != 0:
                return SessionStart("already_there", name, said)
    except exc.TmuxCommandNotFound:
        return SessionStart("no_tmux", name, "no tmux on the host")
    return SessionStart("started", name) if done.returncode == 0 else SessionStart("failed", name, said)


def _run(server: libtmux.Server, commands: Sequence[Sequence[str]]) -> libtmux.common.tmux_cmd:
    words = [word for command in commands for word in [*command, ";"]][:-1]
    config = ["-f", "/dev/null"]  # the user's .tmux.conf is for the user's server
    return libtmux.common.tmux_cmd(*config, f"-L{server.socket_name}", *words, tmux_bin=server.tmux_bin)


def _word(word: str) -> str:
    r"""tmux takes a semicolon at the end of a word as the end of the command, unless it is written `\;`."""
    if "\0" in word:
        raise ValueError("a word for tmux holds a NUL byte")
    return word[:-1] + "\\;" if word.endswith(";") else word


class _TmuxCmd(_local_tmux_cmd):
    """A finished tmux command, run here or over a link."""

    def __init__(self, *args: Any, tmux_bin: str | None = None) -> None:
        if tmux_bin is None or not tmux_bin.startswith(_SCHEME):
            super().__init__(*args, tmux_bin=tmux_bin)
            return
        # Sessions over SSH have no locale, and libtmux's separator is no ASCII: -u, and the agent sets LC_ALL.
        words = ["-u", *map(str, args)]
        self.cmd = ["tmux", *words]
        try:
            answer = _requests[tmux_bin]({"op": "tmux", "argv": words}, _CALL_TIMEOUT_S)
        except AgentRefusal as error:
            if error.code == _NO_TMUX:
                raise exc.TmuxCommandNotFound from error
            raise
        self.returncode = int(answer["rc"])
        self.stdout = _lines(answer["out"])
        self.stderr = [line for line in _lines(answer["err"]) if line]
        if "has-session" in words and self.stderr and not self.stdout:
            # libtmux's own command does this, and its has_session reads it.
            self.stdout = [self.stderr[0]]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    while lines and lines[-1] == "":
        lines.pop()
    return lines


def _take_over() -> None:
    """Put the stand-in where libtmux looks its command class up, once."""
    with _lock:
        if libtmux.common.tmux_cmd is _TmuxCmd:
            return
        version = libtmux.__version__
        if not version.startswith(_SUPPORTED):
            raise RuntimeError(f"libtmux {version} was not looked at; this needs {_SUPPORTED}x")
        for module in (libtmux.common, libtmux.neo, libtmux.server):
            vars(module)["tmux_cmd"] = _TmuxCmd
