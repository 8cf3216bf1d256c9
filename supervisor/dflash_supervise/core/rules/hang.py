"""Progress is flat and two more families agree: the run hangs, or it waits for something we can name.

Idle GPU, flat CPU and a silent log are one observation, "blocked". A hang that may be ended needs a
named culprit beside it (``culprit``): GPUs that spin, or two equal stack samples apart in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from .. import gpuwork
from ..facts import Missing, ProcessesReading, ProgressReading
from ..folding import IO_WAIT_BREAK_S, total
from ..policy import Policy
from ..verdicts import Evidence, Finding, Status, Verdict
from ..view import View, limits
from .culprit import all_spin, culprit

RULE = "hang"
QUIET_FRAC = 0.5  # a family is flat when it has been so for this share of the suspect limit

AGREES, BLAMES_NOBODY, EXPLAINS, SAYS_NOTHING = "agrees", "agrees and blames nobody", "explains", "says nothing"


@dataclass(frozen=True)
class Limit:
    """Which limit runs, and since when."""

    suspect_s: float
    confirm_s: float
    since_s: float
    may_end: bool = True  # False: whatever is found, only a person is called


def hang(view: View, policy: Policy) -> Finding:
    """Judge a living attempt whose step does not move."""
    if view.attempt.stopped_since_s is not None:
        return Finding(RULE, Status.UNKNOWN, "the process is stopped, which is another rule's matter")
    limit = _armed(view, policy)
    flat_s, confirm_s = view.watched_s(limit.since_s), limit.confirm_s
    if flat_s < limit.suspect_s <= view.now_s - limit.since_s:
        text = f"this agent has watched for {flat_s:.0f} s of {limit.suspect_s:.0f} s only"
        return Finding(RULE, Status.UNKNOWN, text, held_s=flat_s, confirm_s=confirm_s)
    if flat_s < limit.suspect_s:
        text = f"nothing has stood still for long: {flat_s:.0f} s of {limit.suspect_s:.0f} s"
        return Finding(RULE, Status.OK, text, held_s=flat_s, confirm_s=confirm_s)
    families = (_process(view, limit, policy), _gpu(view, limit), _growth(view, limit))
    evidence = (_flat(view), *tuple(item for _, item in families))
    answers = [answer for answer, _ in families]
    if EXPLAINS in answers:
        said = families[answers.index(EXPLAINS)][1]
        text = f"the step is flat, but {said.what}: {said.value}{said.unit and ' ' + said.unit}"
        return Finding(RULE, Status.OK, text, held_s=flat_s, confirm_s=confirm_s, evidence=evidence)
    if answers.count(AGREES) + answers.count(BLAMES_NOBODY) < 2:
        text = "the step is flat and too little else can be seen"
        return Finding(RULE, Status.UNKNOWN, text, held_s=flat_s, evidence=evidence)
    # A family that says nothing might have explained the silence: what is not known kills nobody. A host that is
    # known to have no GPU leaves nothing to know.
    known = answers[0] == answers[2] == AGREES and (answers[1] != SAYS_NOTHING or _no_gpus(view))
    found = culprit(view, policy, flat_s=flat_s, confirm_s=confirm_s, known=known and limit.may_end)
    what = f"no step for {flat_s:.0f} s and nothing else moves"
    if isinstance(view.seen.progress, Missing):
        what = f"nothing moves for {flat_s:.0f} s, and the progress cannot be read"
    return Finding(
        RULE,
        Status.FAILING if flat_s >= confirm_s else Status.PENDING,
        f"{what}; {found.text}" if found.text else what,
        verdict=Verdict.HANG,
        cause=found.cause,
        held_s=flat_s,
        confirm_s=confirm_s,
        evidence=evidence + found.evidence,
        culprit=found.text,
    )


def _armed(view: View, policy: Policy) -> Limit:
    """The limit of the phase. Some limit is always armed; one that nobody may act on still calls a person."""
    attempt, progress = view.attempt, view.seen.progress
    own_s = (progress.phase_limit_s or 0.0) if isinstance(progress, ProgressReading) else 0.0
    save_s = max(policy.saving_s, 3 * attempt.longest_save_s)
    if view.finishing:
        return Limit(max(save_s, own_s), max(save_s, own_s), view.still_since_s, may_end=False)
    if view.phase in ("saving", "evaluating"):
        limit_s = max(policy.evaluating_s if view.phase == "evaluating" else save_s, own_s)
        return Limit(limit_s, limit_s, view.still_since_s)
    if not view.stepped:
        silent_s = max(policy.start_silent_s, own_s)
        since_s = max(view.still_since_s, attempt.busy_at_s, attempt.moved_at_s, attempt.log_grew_at_s)
        return Limit(silent_s, silent_s * policy.confirm_factor, since_s)
    return Limit(*limits(attempt, policy), view.still_since_s)


def _no_gpus(view: View) -> bool:
    return not isinstance(view.seen.gpus, Missing) and view.seen.gpus.absent is not None


def _flat(view: View) -> Evidence:
    step, still_s = view.attempt.step, view.now_s - view.attempt.step_changed_at_s
    return Evidence("step", "none yet" if step is None else f"{step} since {still_s:.0f} s")


def _process(view: View, limit: Limit, policy: Policy) -> Tuple[str, Evidence]:
    reading = view.seen.processes
    if isinstance(reading, Missing):
        return SAYS_NOTHING, Evidence("processes", f"cannot be read: {reading.reason}")
    if reading.compilers:
        return EXPLAINS, Evidence("processes", f"{reading.compilers} compiler processes are at work")
    waited = _io_wait(view, policy)
    if waited is not None:
        return waited
    idle_s = view.watched_s(view.attempt.busy_at_s)
    if idle_s >= QUIET_FRAC * limit.suspect_s:
        return AGREES, Evidence("CPU idle", round(idle_s), "s")
    if all_spin(view):
        return AGREES, Evidence("CPU", "busy, while every GPU at work spins")
    return EXPLAINS, Evidence("processes", "they use the CPU")


def _io_wait(view: View, policy: Policy) -> Optional[Tuple[str, Evidence]]:
    """A flush moves no counter for minutes; a file system that is gone for good is a person's matter, never a kill."""
    last, since = view.attempt.io_wait_at_s, view.attempt.io_wait_since_s
    if last is None or since is None or view.now_s - last > IO_WAIT_BREAK_S:
        return None
    waits_s = view.now_s - since
    patience_s = max(policy.saving_s, 3 * view.attempt.longest_save_s)
    evidence = Evidence("waiting for a disk or file system", round(waits_s), "s")
    return (EXPLAINS if waits_s < patience_s else BLAMES_NOBODY), evidence


def _gpu(view: View, limit: Limit) -> Tuple[str, Evidence]:
    if isinstance(view.seen.gpus, Missing):
        return SAYS_NOTHING, Evidence("GPUs", f"cannot be read: {view.seen.gpus.reason}")
    if view.seen.gpus.absent is not None:
        return SAYS_NOTHING, Evidence("GPUs", view.seen.gpus.absent)
    kinds = sorted(set(view.work.values()))
    text = ", ".join(f"{list(view.work.values()).count(kind)} {kind}" for kind in kinds)
    if not kinds or gpuwork.UNKNOWN in kinds or view.seen.gpus.stuck_s:
        return SAYS_NOTHING, Evidence("GPUs", text or "none of them is known to be ours")
    worked = view.attempt.gpu_worked_at_s
    if worked is not None and view.watched_s(worked) < QUIET_FRAC * limit.suspect_s:
        return EXPLAINS, Evidence("GPUs", f"one did work {view.watched_s(worked):.0f} s ago")
    return AGREES, Evidence("GPUs", text)


def _growth(view: View, limit: Limit) -> Tuple[str, Evidence]:
    reading, attempt = view.seen.processes, view.attempt
    told = isinstance(reading, ProcessesReading) and None not in (
        total(reading, "write_bytes"),
        total(reading, "read_bytes"),
    )
    if not told or isinstance(view.seen.log, Missing):
        return SAYS_NOTHING, Evidence("bytes", "cannot be read")
    moved_s, log_s = view.watched_s(attempt.moved_at_s), view.watched_s(attempt.log_grew_at_s)
    if moved_s < QUIET_FRAC * limit.suspect_s:
        return EXPLAINS, Evidence("bytes", f"some moved {moved_s:.0f} s ago")
    if log_s < QUIET_FRAC * limit.suspect_s:
        return EXPLAINS, Evidence("log", f"it grew {log_s:.0f} s ago")
    return AGREES, Evidence("no bytes moved", round(min(moved_s, log_s)), "s")
