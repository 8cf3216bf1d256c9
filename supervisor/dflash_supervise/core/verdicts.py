"""The answers: findings of rules, and the one verdict of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Optional, Tuple, Union


class Verdict(str, Enum):
    """The one state of an attempt."""

    STARTING = "starting"
    RUNNING = "running"
    COMPLETED = "completed"
    NO_LOG = "no_log"
    EARLY_CRASH = "early_crash"
    CRASH = "crash"
    HANG = "hang"
    PARTIAL_STALL = "partial_stall"
    STALE_PROCESS = "stale_process"
    GPU_FAULT = "gpu_fault"
    HOST_UNREACHABLE = "host_unreachable"
    ENDED_UNCLEAR = "ended_unclear"
    STOPPED = "stopped"


class Status(str, Enum):
    """A rule's answer."""

    OK = "ok"
    PENDING = "pending"  # the condition holds, not yet for long enough
    FAILING = "failing"
    UNKNOWN = "unknown"  # a reading it needs is missing


@dataclass(frozen=True)
class Evidence:
    """One fact a finding rests on."""

    what: str  # "step unchanged", "power GPU 3"
    value: Union[str, int, float, None]
    unit: str = ""  # s, W, %, MiB, or empty
    age_s: float = 0.0  # how old the reading was


@dataclass(frozen=True)
class Finding:
    """A rule's answer about one attempt at one moment.

    Raises:
        ValueError: a FAILING finding carries no evidence.
    """

    rule: str
    status: Status
    reason: str  # one sentence for the person who is woken up
    verdict: Optional[Verdict] = None  # what a FAILING or PENDING finding accuses the attempt of
    cause: str = "none"
    held_s: float = 0.0  # how long the condition has been true without a break
    confirm_s: Optional[float] = None  # at which held_s a PENDING finding becomes FAILING
    evidence: Tuple[Evidence, ...] = ()
    culprit: str = ""  # who stands out: a dead thread, a stale lock, a GPU
    key_line: str = ""

    def __post_init__(self) -> None:
        if self.status is Status.FAILING and not self.evidence:
            raise ValueError(f"finding of rule {self.rule} is failing without evidence")


@dataclass(frozen=True)
class Note:
    """True at the same time as the verdict, and changes nothing (slow, throttled, blind: nvml)."""

    slug: str
    reason: str
