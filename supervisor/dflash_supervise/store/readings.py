"""What a judgement rests on while no rule objects: the newest observation as a few rows. Pure.

A row has the shape of evidence: {"what", "value", "unit", "age_s"}. A value of None is not known; the age is that of
the reading, or the time since what it shows moved last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dflash_supervise.core.facts import (
    GpusReading,
    LogReading,
    Missing,
    Observation,
    ProcessesReading,
    ProgressReading,
    WorkerFact,
)
from dflash_supervise.core.policy import Policy
from dflash_supervise.wire import from_json

Doc = dict[str, Any]

FRESH_S = 2.0  # a family that moved within this moves now
NAMED_WORKERS = 4  # more are told as a range


def readings(record: Mapping[str, Any], age_s: float | None) -> list[Doc]:
    """The rows of an observation record of this age (None: not known)."""
    try:
        seen = from_json(Observation, record.get("obs"))
    except ValueError as error:  # written by a newer agent
        return [_row("observation", f"it cannot be read: {error}", age_s)]
    moved = record.get("ages") or {}

    def since_s(family: str) -> float | None:
        return None if age_s is None or moved.get(family) is None else age_s + float(moved[family])

    rows = [_row("processes", _processes(seen), age_s)]
    if seen.attempt.number == 0:
        return [*rows, _gpus(seen.gpus, record.get("gpu_class") or {}, age_s)]
    workers = () if isinstance(seen.progress, Missing) else seen.progress.workers
    rows += [
        _row("step", _step(seen.progress), since_s("step")),
        *([_row("workers", _workers(workers), age_s)] if workers else []),
        _log(seen.log, since_s("log")),
        _gpus(seen.gpus, record.get("gpu_class") or {}, age_s),
    ]
    if seen.exit is not None:
        return rows
    for what, family, busy, quiet in (
        ("CPU", "cpu", "in use", "quiet"),
        ("bytes moved", "moved", "some", "none"),
    ):
        value = None if moved.get(family) is None else busy if float(moved[family]) <= FRESH_S else quiet
        rows.append(_row(what, value, since_s(family)))
    return rows


def step_limit(
    told: Mapping[str, Any], view: Mapping[str, Any], policy: Mapping[str, Any], age_s: float | None
) -> Doc | None:
    """The row that holds a step's time against the limit that the rule named with the verdict; None without one."""
    named = (one.get("confirm_s") for one in told.get("findings") or [] if one.get("rule") == "hang")
    confirm_s = next(named, None)
    if confirm_s is None:
        return None
    took_s = _step_s(view)
    limits = from_json(Policy, dict(policy))
    suspect_s, name = _named(float(confirm_s), told, view, limits)
    took = "unknown" if took_s is None else f"{took_s:.3g} s"
    first = f"suspect at {suspect_s:.0f} s and " if suspect_s < confirm_s else ""
    return _row("step time", f"{took}; a flat step is {first}confirmed at {confirm_s:.0f} s ({name})", age_s)


def _named(confirm_s: float, told: Mapping[str, Any], view: Mapping[str, Any], policy: Policy) -> tuple[float, str]:
    """(from when on it is suspected, which limit it is)."""
    step, total, phase = view.get("step"), view.get("steps_total"), str(told.get("phase") or "")
    if phase in ("saving", "evaluating"):
        return confirm_s, f"the limit while {phase}"
    if phase in ("finishing", "done") or (step is not None and total and step >= total):
        return confirm_s, "the limit of the end"
    suspect_s = confirm_s / policy.confirm_factor
    if told.get("verdict") == "starting" or abs(suspect_s - policy.start_silent_s) < 0.001:
        return suspect_s, "the limit of the start"
    return suspect_s, "learned from its steps"


def _step_s(view: Mapping[str, Any]) -> float | None:
    """Seconds a step over the last one to two minutes; None before there is a rate."""
    marks, step = view.get("marks") or [], view.get("step")
    if step is None or not marks:
        return None
    since_t, since_step = marks[0]
    moved = step - since_step
    return (view["t_s"] - since_t) / moved if moved > 0 and view["t_s"] > since_t else None


def _row(what: str, value: str | float | None, age_s: float | None, unit: str = "") -> Doc:
    return {"what": what, "value": value, "unit": unit, "age_s": None if age_s is None else round(age_s, 1)}


def _processes(seen: Observation) -> str | None:
    reading = seen.processes
    if seen.attempt.number == 0:
        return "nothing was launched yet"
    if not isinstance(reading, ProcessesReading):
        return None
    alive = len(reading.alive)
    if seen.exit is not None or reading.main_alive is False:
        return f"the main process has ended, {alive} left alive"
    return None if reading.main_alive is None else f"the main process lives, {alive} in all"


def _step(progress: ProgressReading | Missing) -> str | None:
    if isinstance(progress, Missing):
        return None
    phase = f", {progress.phase}" if progress.phase else ""
    if progress.step is None:
        return f"none seen yet{phase}"
    total = f" of {progress.steps_total}" if progress.steps_total else ""
    return f"{progress.step}{total}{phase}"


def _workers(workers: tuple[WorkerFact, ...]) -> str:
    dead = [worker.id for worker in workers if worker.alive is False]
    lost = f"; dead: {', '.join(dead[:NAMED_WORKERS])}{' and more' if len(dead) > NAMED_WORKERS else ''}"
    if len(workers) <= NAMED_WORKERS:
        told = ", ".join(f"{one.id} at {'unknown' if one.step is None else one.step}" for one in workers)
        return told + (lost if dead else "")
    steps = [worker.step for worker in workers if worker.step is not None]
    spread = "at unknown steps"
    if steps:
        spread = f"at step {min(steps)}" if min(steps) == max(steps) else f"at steps {min(steps)} to {max(steps)}"
    silent = len(workers) - len(steps)
    return f"{len(workers)} {spread}" + (f", {silent} unknown" if steps and silent else "") + (lost if dead else "")


def _log(log: LogReading | Missing, age_s: float | None) -> Doc:
    if isinstance(log, Missing):
        return _row("log", None, None)
    return _row("log", log.size_bytes, age_s, "B") if log.exists else _row("log", "there is no file", None)


def _gpus(gpus: GpusReading | Missing, classes: Mapping[str, str], age_s: float | None) -> Doc:
    if isinstance(gpus, Missing):
        return _row("GPUs", None, None)
    if gpus.stuck_s is not None:
        return _row("GPUs", f"the driver has not answered for {gpus.stuck_s:.0f} s", age_s)
    if not gpus.gpus:
        return _row("GPUs", gpus.absent, age_s)
    ours = [gpu for gpu in gpus.gpus if gpu.uuid in classes]
    kinds = [classes[gpu.uuid] for gpu in ours]
    told = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    oldest_s = max((gpu.age_s for gpu in ours), default=0.0)
    value = told or f"none of {len(gpus.gpus)} is known to be this run's"
    return _row("GPUs", value, None if age_s is None else age_s + oldest_s)
