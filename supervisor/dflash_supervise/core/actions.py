"""What the brain wants done. Each action names the attempt it may touch and the because it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple, Union


@dataclass(frozen=True)
class Stop:
    """End this attempt's whole set, seal the black box first, then prove it."""

    attempt: int
    because: str
    grace_s: float
    incident: Optional[str] = None


@dataclass(frozen=True)
class Continue:
    """One SIGCONT to the processes of the attempt that are in state T."""

    attempt: int
    because: str
    incident: Optional[str] = None


@dataclass(frozen=True)
class EndStale:
    """End leftovers that carry a token of this workspace's earlier attempts, before a launch."""

    attempt: int  # the attempt that may not begin before they are gone
    because: str
    incident: Optional[str] = None


@dataclass(frozen=True)
class Launch:
    """Start this attempt. Refused by the hands unless the same tick's proof says free and the number is new."""

    attempt: int
    because: str
    remedies: Tuple[str, ...] = ()
    incident: Optional[str] = None


@dataclass(frozen=True)
class SampleStacks:
    """Look where every thread stands: SIGUSR1, only to a process that has a handler for it."""

    attempt: int
    because: str
    incident: Optional[str] = None


Action = Union[Stop, Continue, EndStale, Launch, SampleStacks]


@dataclass(frozen=True)
class Next:
    """What happens next and when, for the person who reads ``why``."""

    what: str  # nothing, wait, start, restart, stop, continue, page
    in_s: Optional[float] = None
    why: str = ""


NOTHING_NEXT = Next("nothing")
