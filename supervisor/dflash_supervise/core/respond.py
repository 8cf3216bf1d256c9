"""What follows from an end or a confirmed finding: restart when, with which remedy, or why not. The response table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from . import budget, causes
from .memory import EndedAttempt, Memory
from .policy import Policy
from .verdicts import Verdict

# Ends that a careful policy may act on: the process is dead, no judgement of ours is needed for that.
DEATHS = frozenset({Verdict.CRASH, Verdict.EARLY_CRASH, Verdict.NO_LOG, Verdict.ENDED_UNCLEAR})

KILLED = frozenset({"killed_externally", "tmux_killed_on_logout"})


@dataclass(frozen=True)
class Response:
    """The answer of the table. ``action`` is one of the words of ``catalogue``."""

    action: str
    text: str  # for a person: "restarting (1 of 3)"
    severity: str = "warn"  # page, warn, info
    restart_in_s: float = 0.0
    remedies: Tuple[str, ...] = ()

    @property
    def restarts(self) -> bool:
        return self.action in (causes.RESTART, causes.AFTER_CLEANUP)


def respond(ended: EndedAttempt, memory: Memory, policy: Policy, kind: str, now_s: float) -> Response:
    """What to do after this end.

    Args:
        ended: the attempt that is over, its verdict and cause.
        kind: bundled, foreign or adopted.
        now_s: boot-time seconds.
    """
    if ended.verdict in (Verdict.COMPLETED, Verdict.STOPPED):
        return Response(causes.NONE, "", "info")
    if policy.preset == "observe" or kind == "adopted":
        return Response(causes.PAGE, "nothing is done: this run is only observed", "page")
    if policy.preset == "careful" and ended.verdict not in DEATHS:
        return Response(causes.PAGE, "nothing is done: the policy is careful", "page")
    refused = _refused(ended, policy, kind)
    if refused is not None:
        return refused
    over = budget.refusal(memory, ended, policy, now_s)
    if over is not None:
        return Response(causes.PAGE, f"giving up: {over}", "page")
    return _restart(ended, memory, policy, now_s)


def _refused(ended: EndedAttempt, policy: Policy, kind: str) -> Optional[Response]:
    cause = causes.get(ended.cause)
    if ended.cause in KILLED and policy.preset != "auto":
        return Response(causes.PAGE, "not restarted: somebody ended it, and the policy is careful", "page")
    if ended.verdict is Verdict.ENDED_UNCLEAR and kind != "bundled":
        return Response(causes.PAGE, "not restarted: how it ended is unclear", "page")
    if ended.verdict is Verdict.NO_LOG:
        return Response(causes.FIX_CONFIG, "not restarted: it ended without a word, so look at the command", "page")
    if cause.action == causes.FIX_CONFIG:
        return Response(
            causes.FIX_CONFIG,
            f"not restarted: {cause.title} comes again until something is changed",
            "page",
        )
    if cause.action in (causes.PAGE, causes.WAIT, causes.NONE):
        return Response(causes.PAGE, f"not restarted: {cause.title} needs a person", "page")
    if ended.verdict is Verdict.EARLY_CRASH and not (cause.before_step and cause.slug != "none"):
        return Response(causes.FIX_CONFIG, "not restarted: it failed before the first step, and would again", "page")
    return None


def _restart(ended: EndedAttempt, memory: Memory, policy: Policy, now_s: float) -> Response:
    cause = causes.get(ended.cause)
    used, allowed = budget.spent(memory, ended.cause, policy, now_s), budget.allowance(ended.cause, policy)
    count = f"({used + 1} of {allowed})"
    wanted = cause.remedy is not None and cause.remedy in policy.remedies and cause.remedy not in memory.remedies
    remedies = (cause.remedy,) if cause.remedy is not None and wanted else ()
    if ended.cause in KILLED:
        wait = policy.killed_wait_s
        return Response(
            causes.RESTART,
            f"somebody ended it; restarting once in {wait:.0f} s {count}",
            "page",
            wait,
            remedies,
        )
    text = f"restarting {count}"
    if remedies:
        text += " with {}".format(", ".join(remedy.replace("_", " ") for remedy in remedies))
    return Response(cause.action, text, "warn", budget.backoff_s(memory, ended, policy, now_s), remedies)
