"""What the brain remembers between ticks. Frozen and JSON-able: it survives a killed agent in ``brain.json``."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Optional, Tuple

from .verdicts import Evidence, Verdict


@dataclass(frozen=True)
class WorkerMemory:
    id: str
    step: Optional[int]
    changed_at_s: float


@dataclass(frozen=True)
class StopDecision:
    """An attempt that must end, decided once and carried until its set is proven empty."""

    attempt: int
    because: str
    verdict: Verdict
    cause: str
    decided_at_s: float
    incident: Optional[str] = None
    key_line: str = ""
    evidence: Tuple[Evidence, ...] = ()
    person: bool = False  # a goal asked for it, not a verdict


@dataclass(frozen=True)
class AttemptMemory:
    """One living attempt as this agent has seen it. Times are boot-time seconds."""

    number: int = 0
    launched_at_s: float = 0.0
    step: Optional[int] = None
    steps_total: Optional[int] = None
    inner: int = 0  # how often the step fell back: an inner restart loop (elastic)
    step_changed_at_s: float = 0.0
    first_step_at_s: Optional[float] = None
    step_times: Tuple[float, ...] = ()  # seconds a step, the last 20 seen
    phase: str = ""
    phase_since_s: float = 0.0
    longest_save_s: float = 0.0
    workers: Tuple[WorkerMemory, ...] = ()
    cpu_s: Optional[float] = None
    cpu_at_s: float = 0.0
    peak_cores: float = 0.0  # the most the set used lately; an old peak fades
    busy_at_s: float = 0.0  # last time the set used more CPU than idle polling does
    written_bytes: Optional[int] = None
    read_bytes: Optional[int] = None
    socket_bytes: Optional[int] = None
    socket_moved_at_s: float = 0.0  # last time its sockets moved anything, or could not be read
    moved_at_s: float = 0.0  # last time bytes were written, read or sent by the set
    io_wait_at_s: Optional[float] = None  # last time a process of it was seen waiting for a disk or a file system
    io_wait_since_s: Optional[float] = None  # since when that has come again and again
    log_size: int = 0
    log_grew_at_s: float = 0.0
    gpu_worked_at_s: Optional[float] = None  # last time any GPU of the run did work; None: never seen
    stopped_since_s: Optional[float] = None  # state T
    continued_at_s: Optional[float] = None  # our one SIGCONT
    checkpoint_step: Optional[int] = None
    own_checkpoint_step: Optional[int] = None  # the newest that no stop of ours had a part in


@dataclass(frozen=True)
class EndedAttempt:
    """An attempt that is over, and what was made of it."""

    number: int
    verdict: Verdict
    cause: str
    sentence: str
    fingerprint: str
    ended_at_s: float
    launched_at_s: float
    key_line: str = ""
    step: Optional[int] = None
    checkpoint_step: Optional[int] = None
    code: Optional[int] = None
    signal: Optional[int] = None
    credited: bool = False  # a new checkpoint far beyond the best made later restarts free again
    person: bool = False
    evidence: Tuple[Evidence, ...] = ()  # of the newest end only: what it was ended for, or what showed how it died


@dataclass(frozen=True)
class Incident:
    """A condition with a beginning and an end. Key: the cause (or the verdict where there is none)."""

    id: str
    attempt: int
    verdict: Verdict
    cause: str
    severity: str  # page, warn, info
    state: str  # pending, open, resolved
    since_s: float
    sentence: str
    key_line: str = ""
    evidence: Tuple[Evidence, ...] = ()
    response: str = ""  # restart, restart_after_cleanup, wait, no_restart_fix_config, alert_human, none
    response_text: str = ""  # "restarting (1 of 3)"
    opened_at_s: Optional[float] = None
    resolved_at_s: Optional[float] = None
    steps_lost: Optional[int] = None


@dataclass(frozen=True)
class Restart:
    at_s: float
    cause: str
    attempt: int  # the attempt that was launched


@dataclass(frozen=True)
class LaunchDecision:
    """An attempt that is wanted and has not been seen yet."""

    wanted_at_s: float
    asked_at_s: Optional[float] = None  # when the hands were asked for it, which takes a proof


@dataclass(frozen=True)
class Memory:
    """Everything that must survive between two ticks and between two agents."""

    boot_id: str = ""
    last_at_s: float = 0.0
    watching_since_s: float = 0.0  # heuristics need one full confirm time seen by this agent without a gap
    attempt: AttemptMemory = AttemptMemory()
    ended: Tuple[EndedAttempt, ...] = ()  # the last 50
    incidents: Tuple[Incident, ...] = ()  # pending and open ones, and the last 50 resolved
    restarts: Tuple[Restart, ...] = ()  # automatic ones of the last 24 h
    stop: Optional[StopDecision] = None
    best_step: int = 0  # the furthest that any ended attempt came
    given_up: str = ""  # why no first attempt is launched, until a newer goal
    goal_generation: int = 0
    goal_want: str = "run"  # of that generation
    again_after: Optional[int] = None  # a person asked for another attempt after this one
    launch: Optional[LaunchDecision] = None
    remedies: Tuple[str, ...] = ()
    final: Optional[Verdict] = None


def new_agent(memory: Memory, now_s: float) -> Memory:
    """The memory as a fresh agent may use it: what earlier agents timed is no ground for a heuristic action."""
    return replace(memory, watching_since_s=now_s)


def on_this_boot(memory: Memory, boot_id: Optional[str], now_s: float) -> Memory:
    """The memory on the clock of the present boot: a boot-time clock begins anew, and ages go on.

    How long the host was down is not known to this clock and counts as nothing.

    Args:
        boot_id: None when it cannot be read; then a clock that ran backwards tells.
    """
    another = boot_id is not None and memory.boot_id not in ("", boot_id)
    if boot_id not in (None, memory.boot_id):
        memory = replace(memory, boot_id=boot_id)
    if memory.last_at_s == 0.0 or not (another or now_s < memory.last_at_s):
        return memory
    moved: Memory = _shifted(memory, now_s - memory.last_at_s)
    return replace(moved, watching_since_s=now_s, last_at_s=now_s)


def _shifted(value: Any, by_s: float) -> Any:
    """Every moment in it moved; moments are the fields called ``...at_s`` and ``...since_s``."""
    if isinstance(value, tuple):
        return tuple(_shifted(item, by_s) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    new = {}
    for field in fields(value):
        old = getattr(value, field.name)
        moment = field.name.endswith(("at_s", "since_s")) and old is not None
        new[field.name] = old + by_s if moment else _shifted(old, by_s)
    return replace(value, **new)
