"""What is true beside the verdict and changes nothing."""

from __future__ import annotations

import math
from typing import List, Tuple

from .facts import GpusReading, HostReading, LogReading, Missing, ProgressReading
from .policy import Policy
from .verdicts import Note, Verdict
from .view import View


def notes(view: View, policy: Policy) -> Tuple[Note, ...]:
    """Blind spots, low disk, non-finite loss, helper threads that died, inner restarts."""
    out: List[Note] = []
    seen = view.seen
    if isinstance(seen.gpus, Missing):
        out.append(Note("blind: gpus", seen.gpus.reason))
    if isinstance(seen.gpus, GpusReading) and seen.gpus.stuck_s:
        out.append(Note("blind: gpus", f"a driver call has not returned for {seen.gpus.stuck_s:.0f} s"))
    if isinstance(seen.gpus, GpusReading):
        out.extend(Note("blind: gpus", f"GPU {gpu.index}: {gpu.error}") for gpu in seen.gpus.gpus if gpu.error)
    if isinstance(seen.processes, Missing):
        out.append(Note("blind: processes", seen.processes.reason))
    if seen.workspace_blind_s > 0:
        out.append(
            Note(
                "blind: workspace",
                f"the workspace has not answered for {seen.workspace_blind_s:.0f} s",
            )
        )
    if (
        isinstance(seen.host, HostReading)
        and seen.host.disk_free_bytes is not None
        and seen.host.disk_free_bytes < policy.disk_low_bytes
    ):
        out.append(Note("disk_low", f"{seen.host.disk_free_bytes / 2**30:.1f} GiB free"))
    if (
        isinstance(seen.progress, ProgressReading)
        and seen.progress.loss is not None
        and not math.isfinite(seen.progress.loss)
    ):
        out.append(Note("nan_loss", f"the loss is not finite at step {seen.progress.step}"))
    if view.attempt.inner:
        out.append(
            Note(
                "elastic_restart",
                f"the step fell back {view.attempt.inner} times within this attempt",
            )
        )
    out.extend(_dead_helpers(view))
    return tuple(out)


def _dead_helpers(view: View) -> List[Note]:
    log = view.seen.log
    if not isinstance(log, LogReading) or view.seen.exit is not None or not view.stepped:
        return []
    if any(one.state != "resolved" and one.verdict is Verdict.PARTIAL_STALL for one in view.memory.incidents):
        return []
    return [
        Note("thread_died", f"thread {t.thread}: {t.key_line[:200]}") for t in log.tracebacks if t.thread is not None
    ][:3]
