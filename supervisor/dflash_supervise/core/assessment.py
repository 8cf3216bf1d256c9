"""The one verdict of the newest attempt, as it is recorded, shown and told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from .actions import NOTHING_NEXT, Next
from .verdicts import Finding, Note, Verdict


@dataclass(frozen=True)
class Assessment:
    """The one verdict of the newest attempt, and what it rests on."""

    attempt: int
    verdict: Verdict
    cause: str
    sentence: str
    suspected: bool = False
    phase: str = ""
    notes: Tuple[Note, ...] = ()
    findings: Tuple[Finding, ...] = ()
    next: Next = NOTHING_NEXT
    final: bool = False
