"""Starting an attempt: a durable intent first, then its keeper.

These functions touch the workspace, which may stall: the agent calls them outside of its tick.
"""

from __future__ import annotations

import os
import socket
import subprocess
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from dflash_supervise.agent.files import attempt_numbers, make_folder, sync_folder, write_json
from dflash_supervise.agent.runtime import (
    Runtime,
    boot_id,
    failpoint,
    gpu_lock_name,
    lock_held,
    lock_owner,
    take_lock,
    wall_clock,
    workspace_lock_name,
)

_keepers: List[subprocess.Popen[bytes]] = []  # started by this process and not reaped yet


class LaunchRefused(Exception):
    """The precondition of a launch does not hold; nothing was started."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def launch(
    run_dir: str,
    number: int,
    because: str,
    remedies: Iterable[str] = (),
    *,
    runtime: Runtime,
    gpus: Optional[Tuple[str, ...]],
    agent_command: Tuple[str, ...],
    now_s: float,
    output_dir: Optional[str] = None,
    incident: Optional[str] = None,
    environ: Optional[Mapping[str, str]] = None,
) -> int:
    """Start the keeper of a new attempt and return its pid; the trainer follows behind the keeper's gate.

    gpus: UUIDs for CUDA_VISIBLE_DEVICES and for the locks, () for none, None to leave the choice to the context.
    agent_command: ``(python, "-IS", agentdir)``. now_s: CLOCK_BOOTTIME. output_dir: ``<workspace>/runs/<run_id>`` if
    None. environ: of the keeper, ours if None; the trainer gets nothing of it.

    Raises:
        LaunchRefused: the number is not new, or the frozen context is not on this host.
        OSError: the intent could not be made durable; nothing was started.
    """
    run_dir = os.path.abspath(run_dir)
    run_id, workspace = os.path.basename(run_dir), workspace_of(run_dir)
    if number <= newest_attempt(run_dir):
        raise LaunchRefused(f"attempt {number} is not new: {newest_attempt(run_dir)} was already tried")
    if not os.path.exists(runtime.context_path(run_id)):
        raise LaunchRefused("the launch context (command, environment) is not in this host's runtime folder any more")
    options = runtime.options(run_id, environ)
    remedies = tuple(remedies)
    intent: Dict[str, Any] = {
        "run": run_id,
        "attempt": number,
        "because": because,
        "incident": incident,
        "remedies": list(remedies),
        "set_env": _remedy_environment(remedies),
        "at": wall_clock(),
        "at_s": now_s,
        "boot_id": boot_id(runtime.proc_root),
        "agent_pid": os.getpid(),
        "gpus": None if gpus is None else list(gpus),
        "locks": [workspace_lock_name(workspace), *(gpu_lock_name(uuid) for uuid in gpus or ())],
        "output_dir": output_dir or os.path.join(workspace, "runs", run_id),
        "agent": [*agent_command, "run", run_dir],
        "failpoint": options.get("failpoint"),
    }
    runtime.run(run_id)
    folder = _claim(run_dir, number)
    write_json(os.path.join(folder, "launch.json"), intent)
    failpoint(options, "after_intent", number)
    return _start_keeper((*agent_command, "keep", run_dir, str(number), runtime.root), environ)


def reap() -> None:
    """Collect the keepers of this agent that have ended; call it at every tick."""
    _keepers[:] = [keeper for keeper in _keepers if keeper.poll() is None]


def _claim(run_dir: str, number: int) -> str:
    """Make the attempt's folder. It exists once, so two agents cannot launch the same attempt."""
    attempts = os.path.join(run_dir, "attempts")
    make_folder(attempts)
    folder = os.path.join(attempts, str(number))
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        raise LaunchRefused(f"attempt {number} is not new: somebody else has just claimed it") from None
    sync_folder(attempts)
    return folder


def _remedy_environment(remedies: Tuple[str, ...]) -> Dict[str, str]:
    """What a remedy changes in the trainer's environment.

    A launcher such as torchrun reads MASTER_PORT; the bundled trainer reads DFLASH_REMEDIES.
    """
    env = {"DFLASH_REMEDIES": ",".join(remedies)} if remedies else {}
    if "another_port" in remedies:
        env["MASTER_PORT"] = str(_free_port())
    return env


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _start_keeper(command: Tuple[str, ...], environ: Optional[Mapping[str, str]]) -> int:
    given = os.environ if environ is None else environ
    env = {k: v for k, v in given.items() if k == "DFLASH_AGENT_OPTIONS" or not k.startswith(("TMUX", "DFLASH_"))}
    keeper = subprocess.Popen(
        command,
        cwd="/",
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _keepers.append(keeper)
    return keeper.pid


def close_interrupted(runtime: Runtime, run_dir: str, number: int, why: str) -> bool:
    """Close an attempt whose keeper never came or died before it had recorded a child: nothing of it ever ran.

    Holds the keeper's lock meanwhile, so that a keeper that comes late finds the attempt closed and leaves.
    Returns False, and writes nothing, when a keeper lives or the attempt has a child or an end.

    Raises:
        OSError
    """
    run_id = os.path.basename(os.path.abspath(run_dir))
    folder = os.path.join(run_dir, "attempts", str(number))
    lock = take_lock(runtime.keeper_lock(run_id, number), {"run": run_id, "attempt": number}, wait_s=0.2)
    if lock is None:
        return False
    try:
        if any(os.path.lexists(os.path.join(folder, name)) for name in ("child.json", "exit.json")):
            return False
        end = {"attempt": number, "pid": None, "code": None, "signal": None, "core": False, "exec_error": why}
        write_json(os.path.join(folder, "exit.json"), {**end, "at": wall_clock()})
        return True
    finally:
        lock.release()


def workspace_of(run_dir: str) -> str:
    """The workspace of ``<workspace>/.dflash/runs/<run_id>``."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(run_dir))))


def newest_attempt(run_dir: str) -> int:
    """The highest number that was ever claimed; 0 when there is none."""
    return max(attempt_numbers(run_dir), default=0)


def lock_blockers(runtime: Runtime, run_id: str, workspace: str, gpu_uuids: Iterable[str]) -> Tuple[str, ...]:
    """One sentence for each lock of this workspace and these GPUs that a living keeper of another run holds."""
    found = []
    names = [(f"workspace {workspace}", workspace_lock_name(workspace))]
    names += [(f"GPU {uuid}", gpu_lock_name(uuid)) for uuid in gpu_uuids]
    for what, name in names:
        path = runtime.lock_path(name)
        owner = lock_owner(path) or {}
        if lock_held(path) is not False and owner.get("run") != run_id:
            found.append(f"{what} is held by run {owner.get('run', '?')} attempt {owner.get('attempt', '?')}")
    return tuple(found)
