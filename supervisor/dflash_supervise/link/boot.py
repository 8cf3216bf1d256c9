"""From a shell command on a host to a speaking agent: find a Python, put the agent there once, become it.

The command is one line for any login shell (dash, bash, zsh, tcsh, fish): `exec /bin/sh -c '...'` without a
quote, a backslash that fish would eat, or an exclamation mark (tcsh expands it even inside quotes). All
that differs from call to call travels on standard input instead.
"""

from __future__ import annotations

import base64
import json
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_supervise.link import errors
from dflash_supervise.link.lines import LineSplitter, parse
from dflash_supervise.link.settings import LinkSettings
from dflash_supervise.link.stream import Stream

_NAMES = "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8"
_FOLDERS = (
    "/usr/bin:/usr/local/bin:/opt/conda/bin:/opt/miniconda3/bin:$HOME/miniconda3/bin:$HOME/miniforge3/bin"
    ":$HOME/anaconda3/bin:/opt/homebrew/bin:$1:$PATH"
)
# A program on the first line of the input, read without buffering: what follows it is not the shell's.
_LOADER = "import sys;exec(sys.stdin.buffer.raw.readline())"
_SHELL = (
    f't=; f="{_FOLDERS}"; IFS=:; for d in $f; do for n in {_NAMES}; do p=$d/$n; '
    'case $p in /*) if [ -f "$p" ] && [ -x "$p" ]; then '
    'if "$p" -IS -c "import sys;sys.exit(sys.version_info<(3,8))" </dev/null >/dev/null 2>&1; '
    f'then exec "$p" -IS -c "{_LOADER}"; fi; t="$t $p"; fi;; esac; done; done; '
    'printf "\\036no-python%s\\n" "$t"; exit 127'
)
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_@%+=,./-]+")
_NO_PYTHON = b"no-python"
_PROTOCOL = 1
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Hello:
    """The agent's first line, and how it came to be there.

    said: the line itself: pid, uid, user, python, hash, machine, now_s, runtime_dir.
    executable: the real Python, not a shim.
    pushed: the agent was not there yet.
    notes: why the workspace was passed over as its place, if it was.
    """

    said: dict[str, Any]
    executable: str
    pushed: bool
    notes: tuple[str, ...]


def command(workspace: str) -> str:
    """The command line for the login shell of a host. Python of `<workspace>/.venv` is one of the choices."""
    plain = _PLAIN_PATH.fullmatch(workspace) is not None
    folder = f"{workspace}/.venv/bin" if plain else "/usr/bin"
    assert "'" not in _SHELL and "!" not in _SHELL
    return f"exec /bin/sh -c '{_SHELL}' dflash {folder}"


def start_agent(
    stream: Stream, splitter: LineSplitter, workspace: str, settings: LinkSettings
) -> tuple[Hello, list[bytes]]:
    """Bring the agent up on a fresh stream; the lines that came after its hello are returned with it.

    Raises:
        LinkError: no Python, no place, a shell that refuses, or silence.
    """
    bundle = settings.agent_bundle()
    packed = zlib.compress(bundle.data, 6)
    config = {
        "hash": bundle.hash,
        "size": len(packed),
        "workspace": workspace,
        "environment": dict(settings.agent_environment),
        "arguments": ["follow"],
    }
    boot = _Boot(stream, splitter, time.monotonic() + settings.hello_timeout_s)
    boot.send(_program() + json.dumps(config).encode() + b"\n")
    message = boot.next_message()
    pushed = message.get("boot") == "need"
    if pushed:
        boot.send(packed)
        message = boot.next_message()
    have = message
    hello = boot.next_message()
    if hello.get("t") == "refused":
        raise errors.agent_refusal(hello)
    if have.get("boot") != "have" or hello.get("t") != "hello":
        raise errors.AgentSilent(f"the agent began with {hello!r}", fix="another program answers in its place")
    if hello.get("protocol") != _PROTOCOL:
        raise errors.AgentSilent(f"the agent speaks protocol {hello.get('protocol')}, this side {_PROTOCOL}")
    return Hello(hello, str(have.get("executable")), pushed, tuple(have.get("notes", ()))), boot.waiting


class _Boot:
    """The conversation before the hello, under one time limit."""

    def __init__(self, stream: Stream, splitter: LineSplitter, until: float) -> None:
        self._stream = stream
        self._splitter = splitter
        self._until = until
        self._spoke = False
        self.waiting: list[bytes] = []

    def send(self, data: bytes) -> None:
        try:
            self._stream.send(data)
        except (OSError, EOFError):
            # The other side ended; what it said before is the better story, and next_message tells it.
            return

    def next_message(self) -> dict[str, Any]:
        line = self._next_line()
        self._spoke = True
        if line.startswith(_NO_PYTHON):
            raise _no_python(line)
        message = parse(line)
        if message is None:
            raise errors.AgentSilent(f"the agent's start answered with no JSON: {line[:200]!r}")
        if message.get("boot") == "failed":
            raise _failed(message)
        return message

    def _next_line(self) -> bytes:
        while not self.waiting:
            if time.monotonic() >= self._until:
                raise self._silent()
            data = self._stream.receive(_POLL_S)
            if data == b"":
                raise self._ended()
            self.waiting += self._splitter.feed(data or b"")
        return self.waiting.pop(0)

    def _seen(self) -> str:
        seen = "\n".join(part for part in (self._splitter.noise, self._stream.stderr_tail) if part)
        return f"; seen: {seen[-1000:]}" if seen else "; it printed nothing"

    def _silent(self) -> errors.LinkError:
        if self._spoke:
            return errors.AgentSilent(f"the agent started and said no hello{self._seen()}")
        return errors.ShellSilent(
            f"the login shell did not come to our command in time{self._seen()}",
            fix="look for a start file of the shell (.bashrc, .profile) that waits or asks",
        )

    def _ended(self) -> errors.LinkError:
        status = self._stream.exit_status()
        ended = "ended" if status is None else f"ended with exit status {status}"
        if self._spoke:
            return errors.AgentSilent(f"the agent {ended} before its hello{self._seen()}")
        return errors.ShellRefuses(
            f"the login shell {ended} before it ran our command{self._seen()}",
            fix="the account needs a shell that runs commands; an `exit` in .bashrc, nologin and rbash do this",
        )


def _no_python(line: bytes) -> errors.LinkError:
    tried = line[len(_NO_PYTHON) :].decode("utf-8", "replace").split()
    found = f"; too old or broken: {', '.join(tried)}" if tried else ""
    return errors.NoPython(
        f"no Python 3.8 or newer on the host{found}",
        fix="install python3, or make <workspace>/.venv with one",
    )


def _failed(message: dict[str, Any]) -> errors.LinkError:
    text = str(message.get("message"))
    if message.get("code") == errors.WorkspaceNotWritable.default_code:
        return errors.WorkspaceNotWritable(text, fix="make the workspace writable, or free space in it")
    return errors.AgentSilent(text, fix="try again")


_read_program: Callable[[], bytes] = (Path(__file__).parent / "remote_boot.py").read_bytes


def _program() -> bytes:
    packed = base64.b64encode(zlib.compress(_read_program(), 9))
    return b"exec(__import__('zlib').decompress(__import__('base64').b64decode(b'" + packed + b"')))\n"
