"""Before a start: is everything there, and is everything free? Looks only, changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from dflash_supervise.agent import shapes, spec, spec_store
from dflash_supervise.agent.files import UnsafeFolder, attempt_numbers, read_json
from dflash_supervise.agent.gpus import one_look, probe_settings
from dflash_supervise.agent.host import free_room
from dflash_supervise.agent.proc import is_alive
from dflash_supervise.agent.pythons import FoundPython, Tried, find_python
from dflash_supervise.agent.runtime import Runtime, boot_id, lock_held, lock_owner, workspace_lock_name
from dflash_supervise.core.facts import GpuReading, GpusReading, Missing
from dflash_supervise.wire import to_json

LEAST_DISK_BYTES = 1 << 30
GPU_LOOK_S = 8.0
Blocker = Dict[str, str]


def preflight(
    runtime: Runtime,
    workspace: str,
    *,
    python: Optional[str],
    gpus: Union[str, List[str]],
    bundled: bool,
    run_id: Optional[str] = None,
    pythons: Sequence[str] = (),
) -> Dict[str, Any]:
    """Everything ``start`` must know before it starts.

    Args:
        gpus: ``all``, ``none`` or a list of UUIDs.
        bundled: the command is the bundled trainer, which needs a Python with torch.
        run_id: the run that will start; its own leftovers do not count as another live run.
        pythons: to try last: the supervisor's own, where it runs on this host.
    """
    options = runtime.options(run_id) if run_id else runtime.options("")
    blockers: List[Blocker] = _workspace_blockers(workspace)
    reading = one_look(probe_settings(options), GPU_LOOK_S) if gpus != "none" else GpusReading((), absent="not wanted")
    wanted = wanted_gpus(reading, gpus)
    found: Optional[FoundPython] = None
    tried: Tuple[Tried, ...] = ()
    if bundled and not blockers:
        need_cuda = bool(wanted) and not options.get("accept_cpu_torch")
        found, tried = find_python(runtime, workspace, python, need_cuda, also=pythons)
        if found is None:
            blockers.append(_python_blocker(tried))
    free, inodes = free_room(workspace)
    blockers += _room_blockers(workspace, free, inodes)
    tmux = find_tmux()
    if tmux is None:
        blockers.append(_blocker("tmux_missing", "there is no tmux in PATH", "install tmux, or start with --no-tmux"))
    live = live_run(runtime, workspace)
    if live is not None and live != run_id:
        blockers.append(_blocker("live_run", f"run {live} lives in this workspace", f"stop {live}"))
    blockers += _gpu_blockers(reading, wanted, gpus)
    return {
        "ok": not blockers,
        "python": None if found is None else to_json_plain(found),
        "tried": [to_json_plain(item) for item in tried],
        "tmux": tmux,
        "gpus": to_json(reading),
        "wanted_gpus": [gpu.uuid for gpu in wanted],
        "disk_free_bytes": free,
        "live_run": live,
        "blockers": blockers,
    }


def to_json_plain(value: Any) -> Dict[str, Any]:
    """A small dataclass with every field, defaults too."""
    return dict(vars(value))


def find_tmux() -> Optional[Dict[str, str]]:
    """Path and version of tmux, or None."""
    path = shutil.which("tmux")
    if path is None:
        return None
    try:
        done = subprocess.run([path, "-V"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {"path": path, "version": done.stdout.decode("utf-8", "replace").strip().replace("tmux ", "")}


def wanted_gpus(reading: Union[GpusReading, Missing], gpus: Union[str, List[str]]) -> Tuple[GpuReading, ...]:
    """The GPUs of the reading that a run with this setting would use."""
    if isinstance(reading, Missing) or gpus == "none":
        return ()
    return tuple(gpu for gpu in reading.gpus if gpus == "all" or gpu.uuid in gpus)


def live_run(runtime: Runtime, workspace: str) -> Optional[str]:
    """The run whose keeper holds this workspace, or whose agent lives in it; None when there is none."""
    path = runtime.lock_path(workspace_lock_name(workspace))
    if lock_held(path) is not False:
        owner = lock_owner(path) or {}
        return str(owner.get("run") or "another process")
    for run in list_runs(runtime, workspace):
        if run["attempt_alive"]:
            return str(run["run_id"])
    return None


def list_runs(runtime: Runtime, workspace: str) -> List[Dict[str, Any]]:
    """The runs of a workspace, by run id: spec, final, whether agent and newest attempt live.

    Raises:
        UnsafeFolder: others could have prepared what lies there.
    """
    spec_store.check_workspace(workspace)
    try:
        names = sorted(os.listdir(os.path.join(workspace, ".dflash", "runs")))
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        folder = os.path.join(workspace, ".dflash", "runs", name)
        data = spec_store.newest(runtime, workspace, name) if set(name) <= spec.RUN_ID_CHARACTERS else None
        if data is None:
            continue
        newest, alive = _newest_attempt(runtime, folder)
        found.append(
            {
                "run_id": name,
                "spec": data,
                "final": read_json(os.path.join(folder, "final.json")),
                "agent_alive": runtime.agent_holds(name),
                "newest_attempt": newest,
                "attempt_alive": alive,
            }
        )
    return found


def _newest_attempt(runtime: Runtime, folder: str) -> Tuple[int, bool]:
    newest = max(attempt_numbers(folder), default=0)
    child = shapes.child(read_json(os.path.join(folder, "attempts", str(newest), "child.json")))
    if child is None or child["pid"] is None or child["boot_id"] != boot_id(runtime.proc_root):
        return newest, False
    return newest, is_alive(int(child["pid"]), int(child["start_ticks"]), runtime.proc_root)


def _workspace_blockers(workspace: str) -> List[Blocker]:
    if not os.path.isdir(workspace):
        return [_blocker("workspace_missing", workspace + " is not a folder on the host", "mkdir -p " + workspace)]
    if not os.access(workspace, os.W_OK | os.X_OK):
        return [_blocker("workspace_not_writable", workspace + " cannot be written", "choose a folder of your own")]
    try:
        spec_store.check_workspace(workspace)
    except UnsafeFolder as error:
        return [_blocker("unsafe_workspace", str(error), error.fix)]
    return []


def _python_blocker(tried: Tuple[Tried, ...]) -> Blocker:
    lines = [f"{item.path} {item.why}" for item in tried] or ["no Python was found"]
    fix = "name one with --python, or make <workspace>/.venv with torch 2.11 or newer"
    return _blocker("python_missing", "no Python can run the trainer: " + "; ".join(lines), fix)


def _room_blockers(workspace: str, free: Optional[int], inodes: Optional[int]) -> List[Blocker]:
    found = []
    if free is not None and free < LEAST_DISK_BYTES:
        text = f"{workspace} has {free / 2**30:.1f} GiB free"
        found.append(_blocker("disk_full", text, "free at least 1 GiB, or choose another workspace"))
    if inodes is not None and inodes < 1000:
        found.append(_blocker("inodes_full", f"{workspace} has {inodes} inodes free", "remove small files"))
    return found


def _gpu_blockers(
    reading: Union[GpusReading, Missing], wanted: Tuple[GpuReading, ...], gpus: Union[str, List[str]]
) -> List[Blocker]:
    """GPUs that are named and not there. Whether they are free is attempt 0's question (``stale_process``)."""
    if not isinstance(gpus, list):
        return []
    if isinstance(reading, Missing):
        return [_blocker("gpu_missing", "the GPUs cannot be read: " + reading.reason, "run doctor on this host")]
    here = {gpu.uuid for gpu in wanted}
    return [
        _blocker("gpu_missing", f"GPU {uuid} is not on this host", "name one of those that doctor lists")
        for uuid in gpus
        if uuid not in here
    ]


def _blocker(code: str, message: str, fix: str) -> Blocker:
    return {"code": code, "message": message, "fix": fix}
