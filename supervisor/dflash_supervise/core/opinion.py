"""What a look at one moment concludes, before it is put into words and an action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from .facts import CauseMatch
from .verdicts import Evidence, Verdict


@dataclass(frozen=True)
class Opinion:
    """A verdict with its cause, why, and the line to read."""

    verdict: Verdict
    cause: str
    reason: str
    key_line: str = ""
    key_line_number: Optional[int] = None
    rank: Optional[str] = None
    action: Optional[str] = None  # None: the catalogue's
    evidence: Tuple[Evidence, ...] = ()


def about(
    verdict: Verdict,
    cause: str,
    reason: str,
    line: Optional[CauseMatch] = None,
    *evidence: Evidence,
    action: Optional[str] = None,
) -> Opinion:
    """An opinion that points at one line of the log."""
    if line is None:
        return Opinion(verdict, cause, reason, action=action, evidence=evidence)
    number = line.line_number or None
    return Opinion(verdict, cause, reason, line.key_line, number, line.rank, action, evidence)
