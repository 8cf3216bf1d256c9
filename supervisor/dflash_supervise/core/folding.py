"""Fold an observation into memory. All pure: time comes from the observation, and a missing reading changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from . import gpuwork
from .facts import GpusReading, LogReading, Missing, Observation, ProcessesReading, ProgressReading, StacksReading
from .iowait import waits_for_io
from .memory import AttemptMemory, Memory, WorkerMemory
from .view import traced, work_classes

GAP_S = 5.0  # a longer silence between two ticks opens a new window (suspend, freeze, agent away)
IDLE_CORES = 0.05  # polling and heartbeats stay below this; a single busy thread is 1.0
PEAK_FADES = 0.98  # a second: an old peak of CPU use halves in 34 s
KEEP_STEP_TIMES = 20
MOVED_BYTES = 4096  # log lines and progress files stay below this in a second
ECHO_S = 2.5  # a stack sample shows in the byte counters within this ...
ECHO_BYTES = 512 * 1024  # ... and is smaller than this, even with hundreds of threads
IO_WAIT_BREAK_S = 15.0  # a flush is not always caught waiting; a longer pause ends it
STARTING = ("loading", "compiling")


def fold(memory: Memory, seen: Observation) -> Memory:
    """The memory after this observation."""
    now = seen.at_s
    memory = _window(memory, seen)
    before = memory.attempt
    attempt = before if seen.attempt.number == before.number else _fresh(seen, now)
    resumed = max([ended.checkpoint_step or 0 for ended in memory.ended] or [0])
    attempt = _fold_progress(attempt, seen, now, resumed)
    ours = memory.stop is not None and memory.stop.attempt == attempt.number
    if not ours and attempt.own_checkpoint_step != attempt.checkpoint_step:
        attempt = replace(attempt, own_checkpoint_step=attempt.checkpoint_step)
    attempt = _fold_processes(attempt, seen, now)
    if isinstance(seen.log, LogReading) and seen.log.size_bytes != attempt.log_size:
        attempt = replace(attempt, log_size=seen.log.size_bytes, log_grew_at_s=now)
    if isinstance(seen.gpus, GpusReading) and any(kind in gpuwork.AT_WORK for kind in work_classes(seen).values()):
        attempt = replace(attempt, gpu_worked_at_s=now)
    thawed = before.stopped_since_s is not None and attempt.stopped_since_s is None
    if thawed or traced(seen):  # what stood still by a person's hand is no evidence afterwards
        memory = replace(memory, watching_since_s=now)
    return replace(memory, attempt=attempt, last_at_s=now)


def _window(memory: Memory, seen: Observation) -> Memory:
    gap = memory.last_at_s == 0.0 or seen.at_s - memory.last_at_s > GAP_S
    return replace(memory, watching_since_s=seen.at_s) if gap else memory


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
        socket_moved_at_s=at,
        log_grew_at_s=at,
    )


# ---- progress


def _fold_progress(attempt: AttemptMemory, seen: Observation, now: float, resumed: int) -> AttemptMemory:
    progress = seen.progress
    if isinstance(progress, Missing):
        return attempt
    attempt = _fold_phase(attempt, progress, now)
    attempt = _fold_step(attempt, progress, now, resumed)
    if progress.steps_total not in (None, attempt.steps_total):
        attempt = replace(attempt, steps_total=progress.steps_total)
    if progress.checkpoint_done and progress.checkpoint_step not in (None, attempt.checkpoint_step):
        attempt = replace(attempt, checkpoint_step=progress.checkpoint_step)
    before = {worker.id: worker for worker in attempt.workers}
    workers = []
    for worker in progress.workers:
        old = before.get(worker.id)
        workers.append(
            old if old is not None and old.step == worker.step else WorkerMemory(worker.id, worker.step, now)
        )
    return attempt if tuple(workers) == attempt.workers else replace(attempt, workers=tuple(workers))


def _fold_phase(attempt: AttemptMemory, progress: ProgressReading, now: float) -> AttemptMemory:
    if progress.phase == attempt.phase:
        return attempt
    if attempt.phase == "saving":
        attempt = replace(attempt, longest_save_s=max(attempt.longest_save_s, now - attempt.phase_since_s))
    return replace(attempt, phase=progress.phase, phase_since_s=now)


def _fold_step(attempt: AttemptMemory, progress: ProgressReading, now: float, resumed: int) -> AttemptMemory:
    """Progress is a change of (inner attempt, step); the number that a resume begins with is none."""
    step = progress.step
    if step is None or step == attempt.step:
        return attempt
    if attempt.step is not None and step < attempt.step:
        return replace(attempt, step=step, inner=attempt.inner + 1, step_changed_at_s=now, first_step_at_s=None)
    if not _is_progress(attempt, progress, step, now, resumed):
        return replace(attempt, step=step, step_changed_at_s=now)
    times = attempt.step_times
    if attempt.step is not None and attempt.first_step_at_s is not None and attempt.phase == "training":
        took_s = (now - attempt.step_changed_at_s) / (step - attempt.step)
        times = (*times, took_s)[-KEEP_STEP_TIMES:]
    first = attempt.first_step_at_s if attempt.first_step_at_s is not None else now
    return replace(attempt, step=step, step_changed_at_s=now, first_step_at_s=first, step_times=times)


def _is_progress(attempt: AttemptMemory, progress: ProgressReading, step: int, now: float, resumed: int) -> bool:
    if attempt.first_step_at_s is not None:
        return True
    if progress.phase in STARTING:
        return False
    if attempt.step is None:
        return progress.phase != "warmup" and step > resumed
    return step > resumed or attempt.phase_since_s < now


# ---- processes


def _fold_processes(attempt: AttemptMemory, seen: Observation, now: float) -> AttemptMemory:
    reading = seen.processes
    if isinstance(reading, Missing):
        return attempt
    stopped = any(p.state == "T" for p in reading.alive if p.via == "main") and not seen.exit
    since = (attempt.stopped_since_s if attempt.stopped_since_s is not None else now) if stopped else None
    if since != attempt.stopped_since_s:
        attempt = replace(attempt, stopped_since_s=since)
    if any(waits_for_io(process) for process in reading.alive):
        last, began = attempt.io_wait_at_s, attempt.io_wait_since_s
        anew = last is None or now - last > IO_WAIT_BREAK_S
        attempt = replace(attempt, io_wait_at_s=now, io_wait_since_s=now if anew else began)
    return _fold_growth(attempt, reading, now, _sampled_just_now(seen))


def _sampled_just_now(seen: Observation) -> bool:
    """A stack sample of ours makes the process itself write a few kilobytes: that is an echo, not growth."""
    stacks = seen.stacks
    return isinstance(stacks, StacksReading) and bool(stacks.samples) and seen.at_s - stacks.samples[-1].at_s <= ECHO_S


def _fold_growth(attempt: AttemptMemory, reading: ProcessesReading, now: float, echo: bool) -> AttemptMemory:
    cpu_s = sum(p.cpu_s for p in reading.alive)
    if attempt.cpu_s is not None and now > attempt.cpu_at_s:
        cores = (cpu_s - attempt.cpu_s) / (now - attempt.cpu_at_s)
        busy = cores > IDLE_CORES or reading.compilers > 0
        faded = attempt.peak_cores * PEAK_FADES ** (now - attempt.cpu_at_s)
        attempt = replace(attempt, peak_cores=max(cores, faded), busy_at_s=now if busy else attempt.busy_at_s)
    written, read = total(reading, "write_bytes"), total(reading, "read_bytes")
    sockets = reading.socket_bytes
    moved = (
        _moved(attempt.written_bytes, written, ECHO_BYTES if echo else MOVED_BYTES)
        or _moved(attempt.read_bytes, read)
        or _moved(attempt.socket_bytes, sockets)
    )
    still = sockets is not None and sockets == attempt.socket_bytes
    return replace(
        attempt,
        cpu_s=cpu_s,
        cpu_at_s=now,
        # A counter that is not told for a moment keeps its value: what moved meanwhile shows at the next look.
        written_bytes=attempt.written_bytes if written is None else written,
        read_bytes=attempt.read_bytes if read is None else read,
        socket_bytes=attempt.socket_bytes if sockets is None else sockets,
        socket_moved_at_s=attempt.socket_moved_at_s if still else now,
        moved_at_s=now if moved else attempt.moved_at_s,
    )


def total(reading: ProcessesReading, name: str) -> Optional[int]:
    """The sum of a counter over the living set; None as soon as one of them does not tell it."""
    values = [getattr(p, name) for p in reading.alive]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _moved(before: Optional[int], after: Optional[int], beyond: int = MOVED_BYTES) -> bool:
    return before is not None and after is not None and after - before > beyond
