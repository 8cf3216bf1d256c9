"""Who holds a blocked run up. Without a name nobody is killed: a quiet run may be waiting for a judge or an upload."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import List, Optional, Tuple, Union

from .. import gpuwork
from ..facts import GpusReading, Missing, StackSample, StacksReading
from ..policy import Policy
from ..verdicts import Evidence
from ..view import View

# Innermost frames of HTTP, gRPC and asyncio clients (file names as the stack summary gives them): somebody outside is
# being waited for, which two equal looks do not tell from a deadlock.
_REMOTE = re.compile(r"\((?:client|connectionpool|connection_pool|_channel|base_events|sync|httpsession)\.py:\d+\)")
SOCKETS_SEEN_S = 5.0  # so late may a movement be seen: the counters are not read in every tick
SPIN_CORES_SLACK = 0.5  # each spinning GPU keeps one core busy; more than that is somebody's own work


@dataclass(frozen=True)
class Culprit:
    """An empty text allows no kill."""

    text: str = ""
    cause: str = "none"
    evidence: Tuple[Evidence, ...] = ()


def culprit(view: View, policy: Policy, *, flat_s: float, confirm_s: float, known: bool) -> Culprit:
    """Name who stands out.

    Args:
        flat_s: how long nothing has moved; only stacks sampled in that time count.
        confirm_s: for so long the sockets of the set must have been silent.
        known: every family answered, and ending the attempt is not ruled out in this phase.
    """
    reading = view.seen.processes
    if isinstance(view.seen.progress, Missing):
        return Culprit(evidence=(Evidence("progress", f"cannot be read: {view.seen.progress.reason}"),))
    if not known or isinstance(reading, Missing):
        return Culprit()
    if reading.socket_bytes is None:
        text = "their byte counters cannot be read, so it is not known that nothing arrives"
        return Culprit(evidence=(Evidence("sockets", text),))
    silent_s = view.watched_s(view.attempt.socket_moved_at_s)
    if silent_s < min(confirm_s, flat_s) - SOCKETS_SEEN_S:
        return Culprit(evidence=(Evidence("sockets", f"something came or went {silent_s:.0f} s ago"),))
    fresh = _fresh(view.seen.stacks, view.now_s - flat_s)
    if fresh and _waits_for_others(fresh[-1]):
        return Culprit(evidence=(Evidence("stack", "a thread waits for an answer from outside"),))
    pair = equal_pair(fresh, policy.stacks_apart_s)
    if pair is not None:
        return _standing(view, *pair)
    moving = len({sample.digest for sample in fresh}) > 1
    if all_spin(view) and not moving and not _works_besides(view):
        return Culprit(_spinning(view), "nccl_spin")
    return Culprit()


def _fresh(stacks: Union[StacksReading, Missing], since_s: float) -> List[StackSample]:
    return [] if isinstance(stacks, Missing) else [sample for sample in stacks.samples if sample.at_s > since_s]


def equal_pair(fresh: List[StackSample], apart_s: float) -> Optional[Tuple[StackSample, StackSample]]:
    """The widest pair of equal samples at least ``apart_s`` apart, if the newest is in it."""
    oldest: Optional[StackSample] = None
    for sample in reversed(fresh):
        if sample.digest != fresh[-1].digest:
            break
        oldest = sample
    return (oldest, fresh[-1]) if oldest is not None and fresh[-1].at_s - oldest.at_s >= apart_s else None


def _standing(view: View, first: StackSample, last: StackSample) -> Culprit:
    cause, text = name_stacks(last.summary)
    if cause == "lock_deadlock" and all_spin(view):
        cause = "nccl_spin"
    lines = tuple(Evidence("stack", line) for line in last.summary[:12])
    return Culprit(text, cause, (Evidence("equal stack samples apart", round(last.at_s - first.at_s), "s"), *lines))


def name_stacks(summary: Tuple[str, ...]) -> Tuple[str, str]:
    """(cause, sentence) for stacks that stand still."""
    text = "\n".join(summary)
    if "compile_fx_backward" in text or ("compile_lock" in text and "autograd" in text):
        return "compile_deadlock", "threads wait for the compiler's lock and its holder for them"
    return "lock_deadlock", f"{len(summary)} threads stand still at the same place in two looks"


def _waits_for_others(sample: StackSample) -> bool:
    return any(_REMOTE.search(line) for line in sample.summary)


def all_spin(view: View) -> bool:
    """Some GPU of ours spins and none does work: a look that is missing a card says no."""
    if not isinstance(view.seen.gpus, GpusReading):
        return False
    kinds = set(view.work.values())
    return gpuwork.SPINNING in kinds and not kinds & set(gpuwork.AT_WORK) and gpuwork.UNKNOWN not in kinds


def _spinning(view: View) -> str:
    """Who waits and, where a card of the run stands idle beside them, who never came."""
    assert isinstance(view.seen.gpus, GpusReading), "all_spin has looked"
    kinds = [(gpu.index, view.work.get(gpu.uuid)) for gpu in view.seen.gpus.gpus]
    waiting = [str(index) for index, kind in kinds if kind == gpuwork.SPINNING]
    absent = [str(index) for index, kind in kinds if kind in (gpuwork.IDLE, gpuwork.OFF)]
    if not absent:
        return "every GPU at work spins at idle power"
    return f"GPU {', '.join(absent)} stands idle while GPU {', '.join(waiting)} spins at idle power and waits for it"


def _works_besides(view: View) -> bool:
    """More CPU than waiting for the GPUs takes: one rank may be evaluating on it while the others wait."""
    spinning = list(view.work.values()).count(gpuwork.SPINNING)
    return view.attempt.peak_cores > spinning + SPIN_CORES_SLACK
