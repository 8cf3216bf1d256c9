"""Fold an observation into memory, and read durations out of it. All pure: time comes from the observation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Optional, Tuple

from . import gpuwork
from .facts import (
    GpusReading,
    HostReading,
    LogReading,
    Missing,
    Observation,
    ProcessesReading,
    ProgressReading,
)
from .memory import AttemptMemory, Memory, WorkerMemory
from .policy import Policy

GAP_S = 5.0  # a longer silence between two ticks opens a new window (suspend, freeze, agent away)
IDLE_CORES = 0.05  # polling and heartbeats stay below this; a single busy thread is 1.0
KEEP_STEP_TIMES = 20
MOVED_BYTES = 4096  # log lines and progress files stay below this in a second


@dataclass(frozen=True)
class View:
    """One attempt at one moment: the observation beside what is remembered of the ticks before it."""

    now_s: float
    seen: Observation
    memory: Memory
    work: Dict[str, str]  # GPU UUID -> work class

    @property
    def attempt(self) -> AttemptMemory:
        return self.memory.attempt

    @property
    def phase(self) -> str:
        return self.attempt.phase

    @property
    def stepped(self) -> bool:
        return self.attempt.first_step_at_s is not None

    def watched_s(self, since_s: float) -> float:
        """How long something has lasted, as far as this agent itself has watched without a gap."""
        return max(0.0, self.now_s - max(since_s, self.memory.watching_since_s))

    @property
    def step_flat_s(self) -> float:
        return self.watched_s(max(self.attempt.step_changed_at_s, self.attempt.launched_at_s))


def limits(attempt: AttemptMemory, policy: Policy) -> Tuple[float, float]:
    """Suspect and confirm limits in seconds for a flat step (``verdicts.md``, Timing)."""
    longest = max(attempt.step_times) if attempt.step_times else 0.0
    suspect = max(policy.suspect_floor_s, policy.suspect_steps * longest)
    return suspect, suspect * policy.confirm_factor


def fold(memory: Memory, seen: Observation) -> Memory:
    """The memory after this observation. A missing reading changes nothing it would have told."""
    now = seen.at_s
    memory = _window(memory, seen)
    attempt = memory.attempt
    if seen.attempt.number != attempt.number:
        attempt = _fresh(seen, now)
    attempt = _fold_progress(attempt, seen, now)
    attempt = _fold_processes(attempt, seen, now)
    if isinstance(seen.log, LogReading) and seen.log.size_bytes != attempt.log_size:
        attempt = replace(attempt, log_size=seen.log.size_bytes, log_grew_at_s=now)
    if isinstance(seen.gpus, GpusReading) and any(kind in gpuwork.AT_WORK for kind in work_classes(seen).values()):
        attempt = replace(attempt, gpu_worked_at_s=now)
    return replace(memory, attempt=attempt, last_at_s=now)


def work_classes(seen: Observation) -> Dict[str, str]:
    if isinstance(seen.gpus, Missing):
        return {}
    return {gpu.uuid: gpuwork.classify(gpu) for gpu in seen.gpus.gpus}


def _window(memory: Memory, seen: Observation) -> Memory:
    now = seen.at_s
    boot_id = seen.host.boot_id if isinstance(seen.host, HostReading) else memory.boot_id
    rebooted = bool(memory.boot_id) and boot_id != memory.boot_id
    if memory.last_at_s == 0.0 or rebooted or now < memory.last_at_s or now - memory.last_at_s > GAP_S:
        memory = replace(memory, watching_since_s=now)
    return replace(memory, boot_id=boot_id)


def _fresh(seen: Observation, now: float) -> AttemptMemory:
    launched = seen.attempt.launched_at_s
    at = launched if launched is not None and launched <= now else now
    return AttemptMemory(
        number=seen.attempt.number,
        launched_at_s=at,
        step_changed_at_s=at,
        phase_since_s=at,
        cpu_at_s=now,
        busy_at_s=at,
        moved_at_s=at,
        log_grew_at_s=at,
    )


def _fold_progress(attempt: AttemptMemory, seen: Observation, now: float) -> AttemptMemory:
    progress = seen.progress
    if isinstance(progress, Missing):
        return attempt
    attempt = _fold_phase(attempt, progress, now)
    attempt = _fold_step(attempt, progress, now)
    if (
        progress.checkpoint_step is not None
        and progress.checkpoint_done
        and progress.checkpoint_step != attempt.checkpoint_step
    ):
        attempt = replace(attempt, checkpoint_step=progress.checkpoint_step, checkpoint_seen_at_s=now)
    before = {worker.id: worker for worker in attempt.workers}
    workers = []
    for worker in progress.workers:
        old = before.get(worker.id)
        same = old is not None and old.step == worker.step
        workers.append(old if same and old is not None else WorkerMemory(worker.id, worker.step, now))
    return replace(attempt, workers=tuple(workers))


def _fold_phase(attempt: AttemptMemory, progress: ProgressReading, now: float) -> AttemptMemory:
    if progress.phase == attempt.phase:
        return attempt
    if attempt.phase == "saving":
        attempt = replace(attempt, longest_save_s=max(attempt.longest_save_s, now - attempt.phase_since_s))
    return replace(attempt, phase=progress.phase, phase_since_s=now)


def _fold_step(attempt: AttemptMemory, progress: ProgressReading, now: float) -> AttemptMemory:
    step = progress.step
    if step is None or step == attempt.step:
        return attempt
    if attempt.step is None:
        # The first number an agent sees may be old news; a first step counts when training says so.
        started = step > 0 and progress.phase not in ("loading", "compiling", "warmup")
        first = now if started else None
        return replace(attempt, step=step, step_changed_at_s=now, first_step_at_s=first, resumed_step=step)
    if step < attempt.step:
        return replace(attempt, step=step, inner=attempt.inner + 1, step_changed_at_s=now, first_step_at_s=None)
    times = attempt.step_times
    if attempt.first_step_at_s is not None and attempt.phase == "training":
        times = ((*times, (now - attempt.step_changed_at_s) / (step - attempt.step)))[-KEEP_STEP_TIMES:]
    first = attempt.first_step_at_s if attempt.first_step_at_s is not None else now
    return replace(attempt, step=step, step_changed_at_s=now, first_step_at_s=first, step_times=times)


def _fold_processes(attempt: AttemptMemory, seen: Observation, now: float) -> AttemptMemory:
    reading = seen.processes
    if isinstance(reading, Missing):
        return attempt
    alive = reading.alive
    stopped = bool(alive) and any(p.state == "T" for p in alive if p.via == "main") and not seen.exit
    since = (attempt.stopped_since_s if attempt.stopped_since_s is not None else now) if stopped else None
    attempt = replace(
        attempt,
        seen_alive=attempt.seen_alive or bool(reading.main_alive),
        stopped_since_s=since,
        continued_at_s=attempt.continued_at_s if stopped else None,
    )
    return _fold_growth(attempt, reading, now)


def _fold_growth(attempt: AttemptMemory, reading: ProcessesReading, now: float) -> AttemptMemory:
    cpu_s = sum(p.cpu_s for p in reading.alive)
    if attempt.cpu_s is not None and now > attempt.cpu_at_s:
        cores = (cpu_s - attempt.cpu_s) / (now - attempt.cpu_at_s)
        if cores > IDLE_CORES or reading.compilers:
            attempt = replace(attempt, busy_at_s=now)
    written = _total(reading, "write_bytes")
    read = _total(reading, "read_bytes")
    moved = (
        _moved(attempt.written_bytes, written)
        or _moved(attempt.read_bytes, read)
        or _moved(attempt.socket_bytes, reading.socket_bytes)
    )
    return replace(
        attempt,
        cpu_s=cpu_s,
        cpu_at_s=now,
        written_bytes=written,
        read_bytes=read,
        socket_bytes=reading.socket_bytes,
        moved_at_s=now if moved else attempt.moved_at_s,
    )


def _total(reading: ProcessesReading, name: str) -> Optional[int]:
    values = [getattr(p, name) for p in reading.alive]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _moved(before: Optional[int], after: Optional[int]) -> bool:
    return before is not None and after is not None and after - before > MOVED_BYTES
