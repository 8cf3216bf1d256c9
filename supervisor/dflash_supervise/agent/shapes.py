"""What our own state files must hold to be believed: one of another shape counts as absent.

They lie where a person, a program or a bad disk can reach them, and whoever reads them may not die of that.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Optional, Tuple

from dflash_supervise.agent.files import read_json

HUGE = 2**64  # no pid, time, count or size of ours comes near

Shape = Mapping[str, type]  # float: any number; every field may be null

CHILD: Shape = {
    "pid": int,
    "start_ticks": int,
    "keeper_pid": int,
    "keeper_start_ticks": int,
    "boot_id": str,
    "at_s": float,
    "adopted": bool,
    "log": str,
}
LAUNCH: Shape = {"at_s": float, "boot_id": str}
EXIT: Shape = {
    "code": int,
    "signal": int,
    "exec_error": str,
    "oom_kills": int,
    "cgroup_oom_kills": int,
    "ran_s": float,
}
MACHINE: Shape = {"machine_id": str, "hostname": str, "gpus": list}


def child(data: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """child.json, or None: a pid without its start time names nobody."""
    if data is None or not fits(data, CHILD) or "pid" not in data or data.get("boot_id") is None:
        return None
    for prefix in ("", "keeper_"):
        if data.get(prefix + "pid") is not None and data.get(prefix + "start_ticks") is None:
            return None
    return data


def launch(data: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """launch.json, or None."""
    return data if data is not None and fits(data, LAUNCH) else None


def exit_told(data: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """exit.json or its copy, or None: an end that does not say how is none."""
    return data if data is not None and fits(data, EXIT) and "code" in data and "signal" in data else None


def machine(data: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """machine.json, or None."""
    if data is None or not fits(data, MACHINE):
        return None
    return data if all(isinstance(uuid, str) for uuid in data.get("gpus") or ()) else None


def members(path: str, boot_id: str) -> Tuple[Tuple[int, int], ...]:
    """The (pid, start_ticks) of set-<n>.json; none when it is of another boot."""
    saved = read_json(path)
    if saved is None or saved.get("boot_id") != boot_id or not isinstance(saved.get("members"), list):
        return ()
    rows = [row for row in saved["members"] if isinstance(row, list) and len(row) == 2]
    return tuple((row[0], row[1]) for row in rows if is_a(row[0], int) and is_a(row[1], int))


def fits(data: Dict[str, Any], shape: Shape) -> bool:
    """Whether each field of the shape is absent, null or of its type."""
    return all(data.get(key) is None or is_a(data[key], kind) for key, kind in shape.items())


def is_a(value: Any, kind: type) -> bool:
    """Whether a decoded value is of this type; a number must be finite and of a size that means something.

    A text must be one that a path can hold.
    """
    if kind is float or kind is int:
        number = isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
        return number and math.isfinite(_bounded(value)) and abs(value) < HUGE
    return isinstance(value, kind) and not (isinstance(value, str) and "\0" in value)


def _bounded(value: Any) -> float:
    """The number as a float; one too large for a float is as good as infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
