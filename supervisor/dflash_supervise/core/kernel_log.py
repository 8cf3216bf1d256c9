"""What the kernel's log says of a run: GPU errors (XID), kills for lack of memory, file systems that do not answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Optional, Tuple

_XID = re.compile(r"Xid \(PCI:([\w:.]+)\): (\d+)(?:, pid='?(\d+|<unknown>)'?)?(?:, name=([^,]+))?")
_KILLED = re.compile(r"Killed process (\d+) \(([^)]*)\)")
_FRESH_BOOT = re.compile(r"^\[ *0\.0+\] |\bLinux version \d")

# XID -> slug. Those that an application causes (13, 31, 43, 45) name no hardware.
HARDWARE = {
    48: "xid_48_ecc",
    63: "xid_63",
    64: "xid_64",
    74: "xid_74_nvlink",
    79: "xid_79",
    94: "xid_94",
    95: "xid_95",
    119: "xid_119",
    120: "xid_120",
}
# With these alone a run may go on: a row was remapped, an error was contained.
MILD = frozenset({"xid_63", "xid_94"})

_TRAINERS = ("python", "pt_", "ray", "torchrun", "train", "deepspeed", "accelerate")


@dataclass(frozen=True)
class Xid:
    """One error report of the GPU driver."""

    slug: str
    line: str
    pid: Optional[int] = None
    name: str = ""


@dataclass(frozen=True)
class KernelSays:
    """The lines that matter, each where it was found; empty where it was not."""

    xids: Tuple[Xid, ...] = ()  # of the hardware
    oom: str = ""  # a process that may be ours was killed for lack of memory
    of_cgroup: bool = False  # ... at the limit of its group
    stuck_io: str = ""  # a file system or disk does not answer
    logout: str = ""  # logind ended a session's processes
    fresh_boot: str = ""


def read_kernel_log(lines: Iterable[str]) -> KernelSays:
    """Read kernel and journal lines, oldest first."""
    xids, found = [], {"oom": "", "stuck_io": "", "logout": "", "fresh_boot": ""}
    of_cgroup = False
    for line in lines:
        xid = _XID.search(line)
        if xid and int(xid.group(2)) in HARDWARE:
            pid = int(xid.group(3)) if (xid.group(3) or "").isdigit() else None
            xids.append(Xid(HARDWARE[int(xid.group(2))], line, pid, (xid.group(4) or "").strip()))
        of_cgroup = of_cgroup or "CONSTRAINT_MEMCG" in line or "emory cgroup out of memory" in line
        what = _what(line)
        if what and not found[what]:
            found[what] = line
    return KernelSays(tuple(xids), found["oom"], of_cgroup, found["stuck_io"], found["logout"], found["fresh_boot"])


def _what(line: str) -> str:
    killed = _KILLED.search(line)
    if killed:
        return "oom" if killed.group(2).startswith(_TRAINERS) else ""
    if "not responding" in line or "blocked for more than" in line or "I/O error" in line:
        return "stuck_io"
    if "scope: Killing process" in line or "logged out" in line or "Removed session" in line:
        return "logout"
    return "fresh_boot" if _FRESH_BOOT.search(line) else ""
