"""A post-mortem of any log: what it was, which line says so, and what to do. Pure.

Nothing is asked of a host: the input is the log's bytes and, where somebody has them, the exit and what was seen beside
it. The scanner, the catalogue, the naming of a death and the rule for ends are the live brain's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterable, Mapping, Optional, Sequence, Tuple

from . import causes
from .context import Context, read_context
from .facts import LogReading
from .logscan import LogScanner
from .opinion import Opinion
from .policy import Policy
from .rules.gpu_fault import gpu_fault
from .rules.postmortem import postmortem
from .rules.snapshot import look_at, snapshot
from .rules.unreachable import unreachable
from .verdicts import Evidence, Verdict

SCHEMA = 1
# A person has to look before anything is started again, although a restart could help afterwards.
_ASK_FIRST = frozenset({"killed_externally", "none"})
_HEALTHY = (Verdict.STARTING, Verdict.RUNNING, Verdict.COMPLETED)


@dataclass(frozen=True)
class Diagnosis:
    """The answer of ``diagnose``."""

    verdict: str
    cause: str
    key_line: str
    key_line_number: Optional[int]  # 1-based; None when the line is not one of the log's
    rank: Optional[str]
    action: str
    restartable: bool
    reason: str
    evidence: Tuple[Evidence, ...]


def diagnose(
    log_chunks: Iterable[bytes],
    *,
    exit_code: Optional[int] = None,
    signal: Optional[int] = None,
    log_kind: str = "train_log",
    gpu: Sequence[Mapping[str, Any]] = (),
    observed: Optional[Mapping[str, Any]] = None,
) -> Diagnosis:
    """Judge a log with what was seen beside it.

    Args:
        log_chunks: the log in order, cut anywhere.
        exit_code: of the launcher; None while it lives, or when nobody knows.
        signal: that ended the first failing rank.
        log_kind: ``train_log``, or ``pane_capture`` for what a terminal showed.
        gpu: a row for each GPU (util, mem_mib, mem_total_mib, power_w, ... each may be absent or None).
        observed: ages, states, kernel log lines and counts at the time of the look.
    """
    scanner, size = LogScanner(), 0
    for chunk in log_chunks:
        scanner.feed(chunk)
        size += len(chunk)
    context = read_context(observed or {}, gpu, exit_code=exit_code, signal=signal, log_kind=log_kind)
    log = scanner.reading(exists=context.log_exists is not False or size > 0, size_bytes=size)
    opinion = _opinion(context, log)
    cause = causes.get(opinion.cause)
    action = opinion.action or _action(opinion)
    return Diagnosis(
        verdict=opinion.verdict.value,
        cause=cause.slug,
        key_line=opinion.key_line,
        key_line_number=opinion.key_line_number,
        rank=opinion.rank,
        action=action,
        restartable=action in (causes.RESTART, causes.AFTER_CLEANUP),
        reason=opinion.reason,
        evidence=opinion.evidence,
    )


def _opinion(context: Context, log: LogReading) -> Opinion:
    policy = Policy()
    look = look_at(context, log, policy)
    away = unreachable(context, log)
    if away is not None:
        return away
    fault = gpu_fault(context, log, moves=not context.ended and (look.fresh or look.works))
    if fault is not None:
        return fault
    if context.ended or _only_a_log(context):
        opinion = postmortem(context, log)
        if opinion.verdict is Verdict.ENDED_UNCLEAR and not context.ended:
            text = "the log alone does not tell whether it lives or how it ended; give the exit code, or a context"
            return replace(opinion, reason=text, evidence=())
        return opinion
    return snapshot(look, policy)


def _only_a_log(context: Context) -> bool:
    """Nobody said anything that tells whether it lives."""
    return context.alive is None and context.log_age_s is None


def _action(opinion: Opinion) -> str:
    if opinion.verdict is Verdict.ENDED_UNCLEAR:
        return causes.PAGE
    if opinion.verdict in _HEALTHY and opinion.cause == "none":
        return causes.NONE
    if opinion.verdict is Verdict.NO_LOG and opinion.cause == "none":
        return causes.FIX_CONFIG
    if opinion.cause in _ASK_FIRST:
        return causes.PAGE
    cause = causes.get(opinion.cause)
    if opinion.verdict is Verdict.EARLY_CRASH and cause.action == causes.RESTART and not cause.before_step:
        return causes.FIX_CONFIG  # it would fail again in the same way
    return cause.action
