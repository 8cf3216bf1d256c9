"""One attempt at one moment: what is seen beside what is remembered, and how long something has lasted. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from . import gpuwork
from .facts import GpuReading, GpusReading, Missing, Observation, ProcessesReading
from .memory import AttemptMemory, Memory
from .policy import Policy

FINISHING = ("finishing", "done")


@dataclass(frozen=True)
class View:
    """One attempt at one moment: the observation beside what is remembered of the ticks before it."""

    now_s: float
    seen: Observation
    memory: Memory
    work: Dict[str, str]  # UUID -> work class of each GPU that may be the run's

    @property
    def attempt(self) -> AttemptMemory:
        return self.memory.attempt

    @property
    def phase(self) -> str:
        return self.attempt.phase

    @property
    def stepped(self) -> bool:
        return self.attempt.first_step_at_s is not None

    @property
    def finishing(self) -> bool:
        """At its last step or after it: nothing heuristic may end it any more."""
        attempt = self.attempt
        if attempt.phase in FINISHING:
            return True
        return attempt.step is not None and attempt.steps_total is not None and attempt.step >= attempt.steps_total

    @property
    def traced(self) -> Optional[bool]:
        """Is a debugger attached; None when the main process does not say."""
        return traced(self.seen)

    def watched_s(self, since_s: float) -> float:
        """How long something has lasted, as far as this agent itself has watched without a gap."""
        return max(0.0, self.now_s - max(since_s, self.memory.watching_since_s))

    @property
    def still_since_s(self) -> float:
        """When training moved last. A change of phase is movement: the step after a checkpoint has its full time."""
        attempt = self.attempt
        return max(attempt.step_changed_at_s, attempt.launched_at_s, attempt.phase_since_s)


def limits(attempt: AttemptMemory, policy: Policy) -> Tuple[float, float]:
    """Suspect and confirm limits in seconds for a flat step.

    Before a step time has been learned in this attempt, the limit of the start holds: a batch size may be new.
    """
    if not attempt.step_times:
        suspect = policy.start_silent_s
    else:
        suspect = max(policy.suspect_floor_s, policy.suspect_steps * max(attempt.step_times))
    return suspect, suspect * policy.confirm_factor


def traced(seen: Observation) -> Optional[bool]:
    if isinstance(seen.processes, Missing):
        return None
    if any(process.tracer_pid for process in seen.processes.alive):
        return True
    main = [process for process in seen.processes.alive if process.via == "main"]
    return None if any(process.tracer_pid is None for process in main) else False


def alive_count(seen: Observation) -> int:
    """Processes of the set that are known to live."""
    return len(seen.processes.alive) if isinstance(seen.processes, ProcessesReading) else 0


def work_classes(seen: Observation) -> Dict[str, str]:
    """What each GPU that may be the run's is doing; work of others neither accuses nor explains."""
    if isinstance(seen.gpus, Missing):
        return {}
    return {gpu.uuid: gpuwork.classify(gpu) for gpu in _ours(seen.gpus)}


def _ours(reading: GpusReading) -> Tuple[GpuReading, ...]:
    """Where the driver names a process of ours, the GPUs without one are not ours; nobody visible may be us."""
    named = any(holder.ours for gpu in reading.gpus for holder in gpu.holders or ())
    return tuple(gpu for gpu in reading.gpus if _may_be_ours(gpu, named))


def _may_be_ours(gpu: GpuReading, named: bool) -> bool:
    if gpu.holders is None:
        return True
    if any(holder.ours for holder in gpu.holders):
        return True
    return not named and (not gpu.holders or any(holder.ours is None for holder in gpu.holders))
