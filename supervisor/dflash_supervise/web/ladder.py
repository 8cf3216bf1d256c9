"""Dead or alive, one rung a kind of evidence: process, log, step, GPU work, power. Pure.

A tick means life was seen, a cross means its absence was seen, a question mark means that nobody can say: the reading
is missing, the news is old, or silence proves nothing (a log may be buffered).
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from dflash_supervise.core.facts import GpusReading, LogReading, Missing, Observation, ProcessesReading
from dflash_supervise.core.gpuwork import AT_WORK, IDLE_FRAC, UNKNOWN
from dflash_supervise.core.verdicts import Verdict
from dflash_supervise.web.control import Doc
from dflash_supervise.web.words import count, gib, size, spoken
from dflash_supervise.wire import from_json

STALE_NEWS_S = 15.0  # the agent speaks each second and beats each 10 s
QUIET_S = 30.0  # a step or a line this young is life; older alone proves nothing
STALLED = frozenset({Verdict.HANG.value, Verdict.PARTIAL_STALL.value})


@dataclass(frozen=True)
class Rung:
    what: str
    mark: str  # yes, no, unknown
    says: str
    age_s: float | None  # since the last sign of life of this kind; None: never seen or not told


NAMES = ("process", "log", "step", "GPU work", "power")


def ladder(run: Doc, record: Doc | None, record_age_s: float | None) -> tuple[Rung, ...]:
    """The five rungs of a run from its newest observation record; old news answers with question marks."""
    if record is None:
        return tuple(Rung(name, "unknown", "nothing was observed yet", None) for name in NAMES)
    try:
        seen = from_json(Observation, record.get("obs"))
    except ValueError as error:
        return tuple(Rung(name, "unknown", f"this record cannot be read: {error}", None) for name in NAMES)
    ages = {key: _number(value) for key, value in (record.get("ages") or {}).items()}
    since = record_age_s or 0.0
    read = (
        _process(seen),
        _log(seen, ages.get("log")),
        _step(seen, run, ages.get("step")),
        _gpu_work(seen, record.get("gpu_class") or {}, ages.get("gpu_work")),
        _power(seen),
    )
    # Ages travel: what was 2 s old in a record that is 3 s old is 5 s old now.
    rungs = tuple(rung if rung.age_s is None else replace(rung, age_s=rung.age_s + since) for rung in read)
    if run.get("reachable") is not False and since <= STALE_NEWS_S:
        return rungs
    return tuple(replace(rung, mark="unknown", says=f"last seen: {rung.says}") for rung in rungs)


def ended_how(seen: Observation) -> str:
    """``exit code 1``, ``signal 9 (SIGKILL)`` or that nobody saw it."""
    ending = seen.exit
    if ending is None:
        return "ended"
    if ending.exec_error:
        return f"never started: {ending.exec_error}"
    if ending.signal is not None:
        return f"ended by signal {ending.signal} ({_signal_name(ending.signal)})"
    if ending.code is not None:
        return f"ended with exit code {ending.code}"
    return "ended, and nobody saw how"


def _process(seen: Observation) -> Rung:
    reading = seen.processes
    if isinstance(reading, Missing):
        return Rung("process", "unknown", reading.reason, 0.0)
    if seen.attempt.number == 0:
        return Rung("process", "unknown", "nothing was launched yet", None)
    if not reading.main_alive and (seen.exit is not None or reading.main_alive is False):
        left = len(reading.alive)
        more = f"; {left} of its processes still live" if left else ""
        return Rung("process", "no", ended_how(seen) + more, 0.0)
    if reading.main_alive is None:
        return Rung("process", "unknown", "the host does not say", 0.0)
    return Rung("process", "yes", _alive_text(reading), 0.0)


def _alive_text(reading: ProcessesReading) -> str:
    alive = reading.alive
    stopped = [process for process in alive if process.state in ("T", "t")]
    text = f"alive, {len(alive)} process{'es' if len(alive) != 1 else ''}"
    threads = sum(process.threads for process in alive)
    text += f", {threads} threads" if threads else ""
    return text + (f"; {len(stopped)} stopped (state T)" if stopped else "")


def _log(seen: Observation, age_s: float | None) -> Rung:
    reading = seen.log
    if isinstance(reading, Missing):
        return Rung("log", "unknown", reading.reason, None)
    if not reading.exists:
        return Rung("log", "no", "no log file", None)
    if not reading.body_bytes:
        return Rung("log", "unknown", "only our header so far", age_s)
    fresh = age_s is not None and age_s <= QUIET_S
    return Rung("log", "yes" if fresh else "unknown", _log_text(reading, fresh), age_s)


def _log_text(reading: LogReading, fresh: bool) -> str:
    told = size(reading.size_bytes)
    return f"{told}, growing" if fresh else f"{told}, silent (silence alone proves nothing)"


def _step(seen: Observation, run: Doc, age_s: float | None) -> Rung:
    progress = seen.progress
    if isinstance(progress, Missing):
        return Rung("step", "unknown", progress.reason, None)
    if progress.step is None:
        return Rung("step", "unknown", f"no step yet, phase {spoken(progress.phase)}", age_s)
    total = f" of {count(progress.steps_total)}" if progress.steps_total else ""
    text = f"{count(progress.step)}{total}, phase {spoken(progress.phase)}"
    flat = [worker.id for worker in progress.workers if worker.alive is False]
    if flat:
        text += f"; dead: {', '.join(flat[:4])}{' and more' if len(flat) > 4 else ''}"
    stalled = run.get("verdict") in STALLED
    fresh = age_s is not None and age_s <= QUIET_S
    return Rung("step", "no" if stalled else "yes" if fresh else "unknown", text, age_s)


def _gpu_work(seen: Observation, classes: dict[str, str], age_s: float | None) -> Rung:
    if isinstance(seen.gpus, Missing):
        return Rung("GPU work", "unknown", seen.gpus.reason, None)
    kinds = [classes.get(gpu.uuid, UNKNOWN) for gpu in seen.gpus.gpus]
    if not kinds:
        return Rung("GPU work", "unknown", seen.gpus.absent or "no GPU is listed", None)
    if seen.gpus.stuck_s is not None:
        return Rung("GPU work", "unknown", f"the driver has not answered for {seen.gpus.stuck_s:.0f} s", age_s)
    told = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(sorted(kinds, key=_rank)))
    if any(kind in AT_WORK for kind in kinds):
        return Rung("GPU work", "yes", told, age_s)
    return Rung("GPU work", "unknown" if UNKNOWN in kinds else "no", told, age_s)


def _rank(kind: str) -> int:
    order = ("working", "starved", "spinning", "idle", "off", "unknown")
    return order.index(kind) if kind in order else len(order)


def _power(seen: Observation) -> Rung:
    if isinstance(seen.gpus, Missing):
        return Rung("power", "unknown", seen.gpus.reason, None)
    told = [gpu for gpu in seen.gpus.gpus if gpu.power_w is not None]
    if not told:
        return Rung("power", "unknown", seen.gpus.absent or "no GPU says what it draws", None)
    total = sum(gpu.power_w or 0.0 for gpu in told)
    limits = [gpu.power_limit_w for gpu in told]
    text = f"{total:,.0f} W on {len(told)} GPU{'s' if len(told) != 1 else ''}"
    if not all(limits):
        return Rung("power", "unknown", text, 0.0)
    text += f" of {sum(limit or 0.0 for limit in limits):,.0f} W, {_memory(seen.gpus)}"
    drawing = any(gpu.power_w > IDLE_FRAC * gpu.power_limit_w for gpu in told if gpu.power_w and gpu.power_limit_w)
    silent = len(told) < len(seen.gpus.gpus)  # a GPU that does not say is not idle
    return Rung("power", "yes" if drawing else "unknown" if silent else "no", text, 0.0)


def _memory(reading: GpusReading) -> str:
    used = [gpu.mem_used_bytes for gpu in reading.gpus if gpu.mem_used_bytes is not None]
    return f"{gib(sum(used))} GiB held" if used else "memory unknown"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
