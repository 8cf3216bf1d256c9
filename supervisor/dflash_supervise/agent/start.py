"""Bring a run's agent to life: from the stream and the pane; the keeper has its own copy of the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import Dict, List, Optional, Tuple

from dflash_supervise.agent.files import COMPLETE, UnsafeFolder, check_folder, read_json
from dflash_supervise.agent.launch import workspace_of
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.agent.spec_store import last_word

MAX_PID = 1 << 22  # the kernel's own limit
WAIT_S = 10.0  # a cold start on a network file system compiles our bytecode first


class NotStarted(Exception):
    """The agent did not come up; the text holds what it said."""


def agent_dir() -> str:
    """The unpacked folder this code runs from: it holds ``__main__.py`` beside the package."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def agent_hash() -> str:
    """The content hash that names the unpacked folder."""
    return os.path.basename(agent_dir())


def agent_command() -> Tuple[str, ...]:
    """What starts this code again on the same Python; a verb follows."""
    return (sys.executable, "-IS", agent_dir())


def verb(*words: str) -> List[str]:
    """The command line of one of our verbs."""
    return [*agent_command(), *words]


def at_home(run_dir: str) -> Tuple[str, ...]:
    """The same from the run's own workspace, where this code is copied if it is not there yet.

    The stream runs from the workspace it was first asked for; a run must not end with somebody else's folder.
    """
    home = os.path.join(workspace_of(run_dir), ".dflash", "agent", agent_hash())
    if home != agent_dir() and not _is_ours(home) and not _copy_to(home):
        return agent_command()  # the workspace takes no files, or others could have put them there
    return (sys.executable, "-IS", home)


def _is_ours(home: str) -> bool:
    """Whole, and nobody else could have written it: what is run must be what was sent."""
    parent = os.path.dirname(home)
    try:
        for folder in (os.path.dirname(parent), parent, home):
            check_folder(folder, private=False)
    except (OSError, UnsafeFolder):
        return False
    return os.path.isfile(os.path.join(home, COMPLETE))


def _copy_to(home: str) -> bool:
    """Copy this code beside and rename it; True when it is there then, by us or by somebody at the same time."""
    beside = f"{home}.{os.getpid()}.tmp"
    try:
        # Not the workspace itself: one that somebody deleted does not come back by itself.
        for folder in (os.path.dirname(os.path.dirname(home)), os.path.dirname(home)):
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o700)
        shutil.copytree(agent_dir(), beside)
        os.rename(beside, home)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
    return _is_ours(home)


def ensure_agent(runtime: Runtime, run_dir: str) -> Tuple[Optional[int], bool]:
    """(pid of the run's agent, whether it was started now). Two callers at once start one: the lock decides.

    No pid: the run is over, and was so before or within a moment.

    Raises:
        NotStarted: no agent holds the lock after ten seconds.
    """
    run_id = os.path.basename(run_dir)
    runtime.run(run_id)
    if runtime.agent_holds(run_id) and not _gone_soon(runtime, run_id):
        return _pid(runtime, run_id), False
    # The verb returns at once: it forks the loop away, so no zombie of it stays with us.
    result = subprocess.run(
        [*at_home(run_dir), "run", run_dir],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        timeout=WAIT_S,
        check=False,
    )
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        pid = _pid(runtime, run_id)
        if pid is not None and runtime.agent_holds(run_id):
            return pid, True
        if result.returncode != 0:
            break
        if last_word(runtime, workspace_of(run_dir), run_id) is not None:
            return None, False  # over already: the agent has nothing to stay for
        time.sleep(0.05)
    said = result.stderr.decode("utf-8", "replace").strip()[-500:] or _last_words(runtime, run_id)
    raise NotStarted("the agent did not start: {}".format(said or "it said nothing"))


def clean_environment() -> Dict[str, str]:
    """Our environment without what is a trainer's or a pane's own; test options stay."""
    return {
        key: value
        for key, value in os.environ.items()
        if key == "DFLASH_AGENT_OPTIONS" or (key not in ("TMUX", "TMUX_PANE") and not key.startswith("DFLASH_"))
    }


def _gone_soon(runtime: Runtime, run_id: str) -> bool:
    """Whether the agent that holds the lock has written its last word; waits until it is gone then."""
    deadline = time.monotonic() + WAIT_S
    while (read_json(runtime.in_run(run_id, "agent.json")) or {}).get("leaving"):
        if not runtime.agent_holds(run_id) or time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def _pid(runtime: Runtime, run_id: str) -> Optional[int]:
    pid = (read_json(runtime.in_run(run_id, "agent.json")) or {}).get("pid")
    return pid if isinstance(pid, int) and 0 < pid < MAX_PID and _alive(pid) else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _last_words(runtime: Runtime, run_id: str) -> str:
    try:
        with open(runtime.in_run(run_id, "agent.err"), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 500))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""
