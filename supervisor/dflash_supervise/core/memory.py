"""What the brain remembers between ticks. Frozen and JSON-able: it survives a killed agent in ``brain.json``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Tuple

from .verdicts import Evidence, Verdict

INCIDENT_STATES: Tuple[str, ...] = ("pending", "open", "resolved")


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
    person: bool = False  # a goal asked for it, not a verdict


@dataclass(frozen=True)
class AttemptMemory:
    """One living attempt as this agent has seen it. Times are boot-time seconds."""

    number: int = 0
    launched_at_s: float = 0.0
    seen_alive: bool = False
    step: Optional[int] = None
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
    busy_at_s: float = 0.0  # last time the set used more CPU than idle polling does
    written_bytes: Optional[int] = None
    read_bytes: Optional[int] = None
    socket_bytes: Optional[int] = None
    moved_at_s: float = 0.0  # last time bytes were written, read or sent by the set
    log_size: int = 0
    log_grew_at_s: float = 0.0
    gpu_worked_at_s: Optional[float] = None  # last time any GPU of the run did work; None: never seen
    stopped_since_s: Optional[float] = None  # state T
    continued_at_s: Optional[float] = None  # our one SIGCONT
    checkpoint_step: Optional[int] = None
    checkpoint_seen_at_s: float = 0.0
    resumed_step: Optional[int] = None  # the first step that was seen: where it began


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
    generation: int = 0  # the goal's when it ended: a newer "run" asks for another attempt whatever the budget
    credited: bool = False  # a new checkpoint far beyond the best made later restarts free again
    person: bool = False


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
    best_step: int = 0  # best credited checkpoint of all attempts
    given_up: str = ""  # why no further attempt is launched, until a newer goal
    goal_generation: int = 0
    remedies: Tuple[str, ...] = ()
    final: Optional[Verdict] = None


def new_agent(memory: Memory, now_s: float) -> Memory:
    """The memory as a fresh agent may use it: what earlier agents timed is no ground for a heuristic action."""
    return replace(memory, watching_since_s=now_s, last_at_s=now_s)
