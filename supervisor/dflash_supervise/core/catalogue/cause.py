"""What an entry of the catalogue is, and the words for what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

RESTART = "restart"
AFTER_CLEANUP = "restart_after_cleanup"
FIX_CONFIG = "no_restart_fix_config"
PAGE = "alert_human"
WAIT = "wait"
NONE = "none"


@dataclass(frozen=True)
class Cause:
    """One entry of the catalogue.

    A pattern is matched against a line without its digits and without its rank prefix, and holds a literal that every
    line it matches contains: most lines then need no regular expression.
    """

    slug: str
    title: str  # what a person reads: "CUDA out of memory"
    blame: str  # user, program, host, hardware, outside
    action: str
    max_restarts: Optional[int] = None  # None: the policy's budget; 0 where the action is no restart
    remedy: Optional[str] = None
    precedence: int = 50  # of two in one log the lower one is nearer to the root
    before_step: bool = False  # may be retried even when it comes before the first step
    patterns: Tuple[str, ...] = ()  # lines that accuse; the first of them is kept
    marks: Tuple[str, ...] = ()  # lines that say what goes on and accuse nobody; the last of them is kept
    over_traceback: bool = False  # named by a line beside a traceback, it still outranks an exception that has no name
    cascade: bool = False  # what the other ranks say when one has died: any exception before it is nearer to the root
    gpu_fault: bool = False  # the hardware is to blame, and the verdict says so
    advice: str = ""  # what a person does about it
