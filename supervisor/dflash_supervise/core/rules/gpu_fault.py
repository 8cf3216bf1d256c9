"""A GPU itself is broken: the kernel's log names it, or the driver has lost it."""

from __future__ import annotations

from typing import List, Optional, Tuple

from .. import causes
from ..context import Context
from ..facts import CauseMatch, GpuReading, LogReading
from ..kernel_log import MILD, Xid
from ..naming import root_of
from ..opinion import Opinion, about
from ..verdicts import Evidence, Verdict

_LOST = ("LOST", "FALLEN", "NOT_FOUND")
_SILENT = ("TIMEOUT", "BLOCKED")


def gpu_fault(context: Context, log: LogReading, *, moves: bool) -> Optional[Opinion]:
    """The fault that ended or blocks the run, or None.

    Args:
        moves: training makes steps as far as can be seen. A mild error is then a note, and an error that no GPU of the
            run shows is somebody else's.
    """
    lost = [gpu for gpu in context.gpus if _says(gpu, _LOST)]
    fatal = [xid for xid in context.kernel.xids if xid.slug not in MILD]
    mild = [xid for xid in context.kernel.xids if xid.slug in MILD] if context.ended else []
    if moves and not lost:
        return None
    if fatal or (mild and _died_of_it(log)):
        xid = min(fatal or mild, key=lambda one: causes.get(one.slug).precedence)
        reset = bool(fatal) or context.remap_pending or xid.slug != "xid_94"
        return about(
            Verdict.GPU_FAULT,
            xid.slug,
            f"{causes.get(xid.slug).title}: the kernel reports it",
            _line(log),
            *_evidence(xid, lost),
            action=causes.PAGE if reset else causes.RESTART,
        )
    if lost:
        text = f"GPU {lost[0].index} does not answer any more: {lost[0].error}"
        return about(Verdict.GPU_FAULT, "gpu_lost", text, _line(log), *_evidence(None, lost))
    blocked = not context.ended and (any(_says(gpu, _SILENT) for gpu in context.gpus) or "blocked" in context.nvml)
    if blocked:
        text = "a call of the driver does not return, and no step is made"
        return about(Verdict.GPU_FAULT, "gpu_lost", text, _line(log), Evidence("NVML", context.nvml or "no answer"))
    return None


def _says(gpu: GpuReading, words: Tuple[str, ...]) -> bool:
    return gpu.error is not None and any(word in gpu.error.upper() for word in words)


def _died_of_it(log: LogReading) -> bool:
    root = root_of(log)
    return root is None or causes.get(root.slug).gpu_fault or root.slug in ("rank_exception", "nccl_remote_error")


def _line(log: LogReading) -> Optional[CauseMatch]:
    """What the log itself says of the device, else the exception it caused, else the last step."""
    device = [one for one in (*log.causes, *log.marks) if causes.get(one.slug).gpu_fault]
    if device:
        return min(device, key=lambda one: (causes.get(one.slug).precedence, one.line_number))
    root = root_of(log)
    return CauseMatch(root.slug, root.key_line, root.line_number, root.rank) if root is not None else log.progress


def _evidence(xid: Optional[Xid], lost: List[GpuReading]) -> Tuple[Evidence, ...]:
    said = (Evidence("kernel log", xid.line[:300]),) if xid is not None else ()
    return (*said, *(Evidence(f"GPU {gpu.index}", gpu.error) for gpu in lost))
