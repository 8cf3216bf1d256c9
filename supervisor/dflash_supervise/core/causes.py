"""The catalogue of causes: what a run can die or stall of, as data.

A cause says whom it blames, what to do about it and which lines of a log speak of it. ``precedence`` orders causes that
are seen in one log: the lower one is nearer to the root.
"""

from __future__ import annotations

from typing import Dict, Optional

from . import matching
from .catalogue import AFTER_CLEANUP, CATALOGUE, FIX_CONFIG, NONE, PAGE, RESTART, WAIT, Cause

__all__ = [
    "AFTER_CLEANUP",
    "BUNDLED_CODES",
    "BY_SLUG",
    "CATALOGUE",
    "DETERMINISTIC_EXCEPTIONS",
    "FIX_CONFIG",
    "NONE",
    "PAGE",
    "RESTART",
    "SIGNAL_CAUSES",
    "SIGNAL_NAMES",
    "WAIT",
    "Cause",
    "get",
    "marks",
    "match",
    "of_exception",
]

BY_SLUG: Dict[str, Cause] = {cause.slug: cause for cause in CATALOGUE}

# Exceptions that a restart cannot change: the same code meets the same data.
DETERMINISTIC_EXCEPTIONS = frozenset(
    {
        "KeyError",
        "IndexError",
        "TypeError",
        "AttributeError",
        "NameError",
        "UnboundLocalError",
        "ValueError",
        "AssertionError",
    }
)

# The bundled trainer's exit codes. Codes whose cause the log tells better are not here.
BUNDLED_CODES: Dict[int, str] = {
    64: "config_error",
    65: "missing_file",
    73: "cuda_oom",
    74: "disk_full",
    75: "remote_service_error",
    76: "nan_loss",
    77: "duplicate_session",
    78: "recompile_limit",
    79: "lock_deadlock",
    80: "nccl_timeout",
    143: "killed_externally",
}

SIGNAL_CAUSES: Dict[int, str] = {
    1: "tmux_killed_on_logout",
    4: "illegal_instruction",
    6: "abort",
    7: "bus_error",
    8: "none",  # arithmetic, and a reader that went away: nobody's kill
    11: "segfault",
    13: "none",
}

# What a person's Ctrl-C or kill looks like when Python or a launcher turns it into an exception.
SOMEBODYS_EXCEPTIONS = frozenset({"KeyboardInterrupt", "SignalException"})

SIGNAL_NAMES: Dict[int, str] = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}


def get(slug: str) -> Cause:
    """The entry for a slug; an unknown one is treated as ``none``."""
    return BY_SLUG.get(slug, BY_SLUG["none"])


def match(line: str) -> Optional[str]:
    """The slug of the root-most cause this line accuses, or None."""
    return _slug(matching.ACCUSING, line)


def marks(line: str) -> Optional[str]:
    """The slug of what this line says is going on, without accusing anybody."""
    return _slug(matching.MARKING, line)


def _slug(patterns: matching.Patterns, line: str) -> Optional[str]:
    shape = line.translate(matching.DIGITS)
    return patterns.slug(shape, matching.words_of(shape.encode("utf-8", "replace")))


def of_exception(exc_type: str) -> str:
    """The cause of an uncaught exception that no catalogue pattern names."""
    name = exc_type.rsplit(".", 1)[-1]
    if name in SOMEBODYS_EXCEPTIONS:
        return "killed_externally"
    return "bug_in_code" if name in DETERMINISTIC_EXCEPTIONS else "rank_exception"
