"""Take up a training run that somebody else started: name its main process once, and only watch from then on.

Its set is that process and its descendants. How it ends nobody of ours sees, so the exit code stays unknown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, Dict, List, Optional, Tuple

from dflash_supervise.agent import shapes
from dflash_supervise.agent.files import make_folder, read_json, write_json
from dflash_supervise.agent.proc import read_stat
from dflash_supervise.agent.runtime import boot_id, wall_clock
from dflash_supervise.agent.spec import Adopt

NUMBER = 1  # an adopted run has one attempt
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "ksh", "tcsh", "csh"))
GONE = (0, 0)  # a process that was named and is not there

Key = Tuple[int, int]


def adopt(run_dir: str, wanted: Adopt, now_s: float, proc_root: str = "/proc") -> Dict[str, Any]:
    """Find the run's main process and remember it as attempt 1, once; later calls return what was remembered.

    Raises:
        OSError: the run directory does not take it.
    """
    attempts = os.path.join(run_dir, "attempts")
    folder = os.path.join(attempts, str(NUMBER))
    known = shapes.child(read_json(os.path.join(folder, "child.json")))
    if known is not None:
        return known
    for path in (attempts, folder):
        make_folder(path)
    main = find_main(wanted, proc_root)
    child = {
        "attempt": NUMBER,
        "pid": main[0] if main else None,
        "start_ticks": main[1] if main else None,
        "keeper_pid": None,
        "keeper_start_ticks": None,
        "boot_id": boot_id(proc_root),
        "at": wall_clock(),
        "at_s": now_s,
        "adopted": True,
        "log": wanted.log,
    }
    write_json(os.path.join(folder, "child.json"), child)
    return child


def find_main(wanted: Adopt, proc_root: str = "/proc") -> Optional[Key]:
    """(pid, start_ticks) of the main process; ``GONE`` when the named one is not there; None when none was named."""
    if wanted.pid is not None:
        stat = read_stat(wanted.pid, proc_root)
        return stat.key if stat is not None and stat.alive else GONE
    if wanted.tmux is not None:
        pane = _pane_pid(wanted.tmux)
        stat = read_stat(pane, proc_root) if pane is not None else None
        return _trainer_below(stat.key, proc_root) if stat is not None else GONE
    return None


def look_for(wanted: Adopt, proc_root: str = "/proc") -> Dict[str, Any]:
    """Whether what is to be adopted is there now: {"pid": its main process or None, "sessions": what tmux has}.

    Asked before a run is made of it: a mistyped name must leave none behind.
    """
    main = find_main(wanted, proc_root)
    sessions = _tmux("list-sessions", "-F", "#{session_name}") if wanted.tmux is not None else []
    return {"pid": main[0] if main is not None and main != GONE else None, "sessions": sessions}


def _pane_pid(session: str) -> Optional[int]:
    """The first pane's process of a session on the user's own tmux server."""
    panes = _tmux("list-panes", "-s", "-t", "=" + session, "-F", "#{pane_pid}")
    return int(panes[0]) if panes and panes[0].isdigit() else None


def _tmux(*words: str) -> List[str]:
    """The lines of its answer; none when there is no tmux, no server or no such session."""
    tmux = shutil.which("tmux")
    if tmux is None:
        return []
    env = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")}
    try:
        done = subprocess.run(
            [tmux, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=10,
            env=env,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("utf-8", "replace").splitlines()


def _trainer_below(pane: Key, proc_root: str) -> Key:
    """A pane's shell outlives what runs in it, so the run is the busiest process that the shell has started."""
    key = pane
    while True:
        stat = read_stat(key[0], proc_root)
        if stat is None or stat.comm.lstrip("-") not in SHELLS:
            return key
        below = _children(key[0], proc_root)
        if not below:
            return key
        key = max(below)[1]


def _children(pid: int, proc_root: str) -> List[Tuple[float, Key]]:
    """(CPU seconds, key) of the living children."""
    found = []
    for name in os.listdir(proc_root):
        stat = read_stat(int(name), proc_root) if name.isdigit() else None
        if stat is not None and stat.ppid == pid and stat.alive:
            found.append((stat.cpu_s, stat.key))
    return found
