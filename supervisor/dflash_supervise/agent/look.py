"""One look at the host, for a person or for the daemon: GPUs with their holders, room, runs. Changes nothing."""

from __future__ import annotations

from typing import Any, Dict, Optional

from dflash_supervise.agent.files import UnsafeFolder
from dflash_supervise.agent.gpu_rows import with_holders
from dflash_supervise.agent.gpus import one_look, probe_settings
from dflash_supervise.agent.host import free_room, this_machine
from dflash_supervise.agent.host import look as look_at_host
from dflash_supervise.agent.preflight import GPU_LOOK_S, list_runs
from dflash_supervise.agent.procs import ProcessSet
from dflash_supervise.agent.runtime import Runtime, boottime_s
from dflash_supervise.core import gpuwork
from dflash_supervise.core.facts import Missing
from dflash_supervise.wire import to_json


def look(runtime: Runtime, workspace: Optional[str]) -> Dict[str, Any]:
    """The host now; with a workspace also its room and its runs."""
    options = runtime.options("")
    machine = this_machine(runtime.proc_root)
    free, inodes = free_room(workspace) if workspace else (None, None)
    processes = ProcessSet("", 0, proc_root=runtime.proc_root)
    processes.scan(None, None, now_s=boottime_s())
    gpus = with_holders(one_look(probe_settings(options), GPU_LOOK_S), processes.holder)
    classes = {} if isinstance(gpus, Missing) else {gpu.uuid: gpuwork.classify(gpu) for gpu in gpus.gpus}
    found: Dict[str, Any] = {
        "machine": machine,
        "now_s": round(boottime_s(), 3),
        "host": to_json(look_at_host(machine, free, inodes, runtime.proc_root)),
        "gpus": to_json(gpus),
        "gpu_class": classes,
        "runs": [],
    }
    if workspace:
        try:
            found["runs"] = list_runs(runtime, workspace)
        except UnsafeFolder as error:
            found["unsafe"] = str(error)
    return found
