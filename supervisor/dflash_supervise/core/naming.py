"""Which of all that a log, an exit and the kernel say is the root of a death: the first failing rank, not its echo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import List, Optional, Tuple

from . import causes
from .facts import CauseMatch, ExitReading, LogReading, Traceback

# Exceptions that only report another one's end.
WRAPPERS = frozenset(
    {
        "ChildFailedError",
        "ProcessRaisedException",
        "ProcessExitedException",
        "CalledProcessError",
        "SystemExit",
    }
)
# How an exit's signal counts less than a cause that the log names.
_EXPLAINED = ("abort", "segfault", "bus_error", "none")
_SEQUENCE = re.compile(r"SeqNum=(\d+)")


@dataclass(frozen=True)
class Named:
    """A cause, and the line that names it."""

    slug: str
    key_line: str = ""
    line_number: int = 0
    where: str = ""  # file:line of the innermost frame
    rank: Optional[str] = None


NOBODY = Named("none")


def name_death(ended: ExitReading, log: Optional[LogReading], kind: str) -> Named:
    """The root-most of what exit, log and kernel say about the end of a process that did not end well."""
    ours = kind == "bundled" and ended.code in causes.BUNDLED_CODES
    number = ended.signal
    if number is None and not ours and (ended.code or 0) - 128 in causes.SIGNAL_NAMES:
        number = (ended.code or 0) - 128  # a shell or launcher tells in this way what its child died of
    found = root_of(log)
    if number is None and not ours and (found is None or found.slug == "killed_externally"):
        number = _reported_signal(log)
    if number is not None:
        return _by_signal(number, ended, log, found)
    if ours and ended.code is not None:
        return _by_our_code(causes.BUNDLED_CODES[ended.code], found)
    if found is not None:
        return found
    return Named({126: "permission_denied", 127: "command_not_found"}.get(ended.code or 0, "none"))


def root_of(log: Optional[LogReading]) -> Optional[Named]:
    """What the log itself names as the root of an end; what training went on after is none."""
    if log is None:
        return None
    traced = [one for one in uncaught(log) if one.exc_type.rsplit(".", 1)[-1] not in WRAPPERS]
    accused = [one for one in log.causes if not survived(log, one.line_number) and one.slug != "loss_spike"]
    best = _strongest(accused, traced)
    unnamed = _first_unnamed(traced, accused)
    if best is not None and (unnamed is None or _outranks(best, unnamed, traced)):
        return _named(best, traced, log)
    if unnamed is None:
        return None
    slug = causes.of_exception(unnamed.exc_type)
    rank = unnamed.rank or log.root_rank
    if unnamed.group:
        return Named(slug, unnamed.group, unnamed.group_line_number, unnamed.where, rank)
    return Named(slug, unnamed.key_line, unnamed.line_number, unnamed.where, rank)


def survived(log: LogReading, line_number: int) -> bool:
    """Whether training made three steps after this line."""
    return len(log.progress_lines) == 3 and log.progress_lines[0] > line_number


def uncaught(log: LogReading) -> List[Traceback]:
    """The tracebacks that nothing shows to have been survived."""
    if log.traceback_is_last is False and not log.progress_lines:
        return []
    return [one for one in log.tracebacks if not survived(log, one.line_number)]


def _by_signal(number: int, ended: ExitReading, log: Optional[LogReading], found: Optional[Named]) -> Named:
    report = next((one for one in log.ends if one.signal == number), None) if log is not None else None
    line = Named("", report.key_line, report.line_number, "", report.rank) if report is not None else found or NOBODY
    if number == 9:
        if found is not None and found.slug in ("cgroup_oom_kill", "spot_preemption"):
            return found
        if found is not None and found.slug in ("dataloader_killed", "host_oom_kill"):
            line = found
        slug = "host_oom_kill" if ended.oom_kills else "killed_externally"
        if slug == "killed_externally" and line.slug in ("dataloader_killed", "host_oom_kill"):
            slug = line.slug
        return Named(slug, line.key_line, line.line_number, line.where, line.rank)
    slug = causes.SIGNAL_CAUSES.get(number, "killed_externally")
    if found is not None and (slug in _EXPLAINED or found.slug == "spot_preemption"):
        return found
    return Named(slug, line.key_line, line.line_number, line.where, line.rank)


def _by_our_code(slug: str, found: Optional[Named]) -> Named:
    if found is None:
        return Named(slug)
    if causes.get(found.slug).precedence < causes.get(slug).precedence:
        return found
    return Named(slug, found.key_line, found.line_number, found.where, found.rank)


def _reported_signal(log: Optional[LogReading]) -> Optional[int]:
    """The signal of the first child that a launcher reports; its own helpers end by SIGTERM."""
    if log is None:
        return None
    return next((one.signal for one in log.ends if one.signal is not None), None)


def _strongest(accused: List[CauseMatch], traced: List[Traceback]) -> Optional[CauseMatch]:
    """The accusation nearest to the root; of equals the earliest, and an exception's own line before its warnings."""
    raised = [CauseMatch(one.slug, one.key_line, one.line_number, one.rank) for one in traced if one.slug is not None]
    everything = [*accused, *raised]
    return min(everything, key=_nearness) if everything else None


def _nearness(one: CauseMatch) -> Tuple[int, bool, int]:
    return causes.get(one.slug).precedence, one.warns, one.line_number


def _first_unnamed(traced: List[Traceback], accused: List[CauseMatch]) -> Optional[Traceback]:
    """The first exception that nothing in the catalogue names, of a main thread where there is one."""
    lines = {one.line_number for one in accused}
    unnamed = [one for one in traced if one.slug is None and one.line_number not in lines]
    groups = {one.group_line_number for one in unnamed if one.group}
    leaves = [one for one in unnamed if one.line_number not in groups]
    roots = [one for one in leaves if not one.chained] or leaves
    return next((one for one in roots if one.thread is None), roots[0] if roots else None)


def _outranks(best: CauseMatch, unnamed: Traceback, traced: List[Traceback]) -> bool:
    cause = causes.get(best.slug)
    if cause.cascade:
        return best.line_number < (unnamed.head_line_number or unnamed.line_number)
    if cause.over_traceback or any(one.line_number == best.line_number for one in traced):
        return True
    return best.line_number >= unnamed.line_number


def _named(best: CauseMatch, traced: List[Traceback], log: LogReading) -> Named:
    at = next((one for one in traced if one.line_number == best.line_number), None)
    beside = at or (traced[-1] if traced else None)
    where = beside.where if beside is not None else ""
    rank = _laggard(log) if best.slug == "nccl_timeout" else None
    rank = rank or best.rank or (at.rank if at is not None else None) or log.root_rank
    if at is not None and at.group:
        return Named(best.slug, at.group, at.group_line_number, where, rank)
    return Named(best.slug, best.key_line, best.line_number, where, rank)


def _laggard(log: LogReading) -> Optional[str]:
    """The rank that is behind the others in its count of collectives is the one they waited for."""
    counted: List[Tuple[int, Optional[str]]] = []
    for one in log.causes:
        found = _SEQUENCE.search(one.key_line) if one.slug == "nccl_timeout" else None
        if found is not None:
            counted.append((int(found.group(1)[:18]), one.rank))
    return min(counted)[1] if counted and min(counted)[0] < max(counted)[0] else None
