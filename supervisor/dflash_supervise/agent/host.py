"""The host as a whole: who it is, and what room is left on it."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple

from dflash_supervise.agent.runtime import machine_identity
from dflash_supervise.core.facts import HostReading


def look(
    identity: Dict[str, Any],
    disk_free_bytes: Optional[int],
    disk_free_inodes: Optional[int],
    proc_root: str = "/proc",
) -> HostReading:
    """The host's reading.

    Args:
        identity: ``machine_identity()``, read once: it cannot change under a living process.
        disk_free_bytes: of the workspace, looked at elsewhere because it may not answer.
    """
    return HostReading(
        boot_id=str(identity["boot_id"]),
        machine_id=str(identity["machine_id"]),
        disk_free_bytes=disk_free_bytes,
        disk_free_inodes=disk_free_inodes,
        shm_free_bytes=free_room("/dev/shm")[0],
        mem_available_bytes=_mem_available(proc_root),
        load1=_load1(),
    )


def free_room(path: str) -> Tuple[Optional[int], Optional[int]]:
    """Free bytes and inodes for this user on the file system of ``path``; None where it does not say."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None, None
    inodes = status.f_favail if status.f_files else None  # btrfs and some network file systems count none
    return status.f_bavail * status.f_frsize, inodes


def same_machine(
    before: Dict[str, Any], now: Dict[str, Any], gpus_before: Tuple[str, ...], gpus_now: Tuple[str, ...]
) -> Optional[str]:
    """None when a run that began as ``before`` may go on here; else why a person must decide.

    A reboot keeps machine id and GPUs; another login node, a moved volume or a cloned image does not.
    Unknown GPUs (an empty tuple) accuse nobody.
    """
    if before.get("machine_id") and now.get("machine_id") and before["machine_id"] != now["machine_id"]:
        return "this run began on {}, whose machine id is another one".format(before.get("hostname"))
    if gpus_before and gpus_now and not set(gpus_before) & set(gpus_now):
        return "this run began on {}, and none of its GPUs is here".format(before.get("hostname"))
    return None


def this_machine(proc_root: str = "/proc") -> Dict[str, Any]:
    """Who this machine is, as every ``hello`` and ``agent_start`` carries it."""
    return machine_identity(proc_root)


def _mem_available(proc_root: str) -> Optional[int]:
    try:
        with open(proc_root + "/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


def _load1() -> Optional[float]:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
