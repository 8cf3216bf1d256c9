"""Progress is flat and two more families agree: the run hangs, or it waits for something we can name.

Idle GPU, flat CPU and a silent log are one observation, "blocked" (safety rule 1). A hang that may be ended needs a
named culprit beside it: GPUs that spin, or two equal stack samples apart in time.
"""

from __future__ import annotations

from typing import List, Optional, Tuple, Union

from .. import gpuwork
from ..facts import GpusReading, Missing, ProgressReading, StackSample, StacksReading
from ..policy import Policy
from ..verdicts import Evidence, Finding, Status, Verdict
from ..view import View, limits

RULE = "hang"
QUIET_FRAC = 0.5  # a family is flat when it has been so for this share of the suspect limit

AGREES, EXPLAINS, SAYS_NOTHING = "agrees", "explains", "says nothing"


def hang(view: View, policy: Policy) -> Finding:
    """Judge a living attempt whose step does not move."""
    armed = _armed(view, policy)
    if isinstance(armed, str):
        return Finding(RULE, Status.OK, armed)
    suspect_s, confirm_s, flat_s = armed
    if flat_s < suspect_s:
        return Finding(RULE, Status.OK, f"the step moved {flat_s:.0f} s ago", held_s=flat_s, confirm_s=confirm_s)
    families = (_process(view, suspect_s), _gpu(view, suspect_s), _growth(view, suspect_s))
    evidence = (_flat(view, flat_s), *tuple(item for _, item in families))
    answers = [answer for answer, _ in families]
    if EXPLAINS in answers:
        return Finding(RULE, Status.OK, f"the step is flat, but {families[answers.index(EXPLAINS)][1].value}",
                       held_s=flat_s, confirm_s=confirm_s, evidence=evidence)  # fmt: skip
    if answers.count(AGREES) < 2:
        return Finding(
            RULE,
            Status.UNKNOWN,
            "the step is flat and too little else can be seen",
            held_s=flat_s,
            evidence=evidence,
        )
    culprit, cause, seen = _culprit(view, policy, answers)
    confirmed = flat_s >= confirm_s
    what = f"no step for {flat_s:.0f} s and nothing else moves"
    return Finding(
        RULE,
        Status.FAILING if confirmed else Status.PENDING,
        f"{what}; {culprit}" if culprit else what,
        verdict=Verdict.HANG,
        cause=cause,
        held_s=flat_s,
        confirm_s=confirm_s,
        evidence=evidence + seen,
        culprit=culprit,
    )


def _armed(view: View, policy: Policy) -> Union[Tuple[float, float, float], str]:
    """(suspect, confirm, how long it has been flat) in seconds, or why no limit runs."""
    attempt, progress = view.attempt, view.seen.progress
    if attempt.stopped_since_s is not None:
        return "the process is stopped, which is another rule's matter"
    if isinstance(progress, ProgressReading) and progress.phase in ("finishing", "done"):
        return "the run is finishing"
    if _last_step(progress):
        return "the last step is done"
    if view.phase in ("saving", "evaluating"):
        limit = policy.evaluating_s if view.phase == "evaluating" else max(policy.saving_s, 3 * attempt.longest_save_s)
        if isinstance(progress, ProgressReading) and progress.phase_limit_s is not None:
            limit = max(limit, progress.phase_limit_s)
        flat = view.watched_s(max(attempt.phase_since_s, attempt.step_changed_at_s))
        return limit, limit, flat
    if not view.stepped:
        growing_s = max(
            attempt.busy_at_s,
            attempt.moved_at_s,
            attempt.log_grew_at_s,
            attempt.phase_since_s,
            attempt.launched_at_s,
        )
        return policy.start_silent_s, policy.start_silent_s * policy.confirm_factor, view.watched_s(growing_s)
    suspect_s, confirm_s = limits(attempt, policy)
    return suspect_s, confirm_s, view.step_flat_s


def _last_step(progress: object) -> bool:
    if not isinstance(progress, ProgressReading) or progress.step is None or progress.steps_total is None:
        return False
    return progress.step >= progress.steps_total


def _flat(view: View, flat_s: float) -> Evidence:
    step = view.attempt.step
    return Evidence("step", "none yet" if step is None else f"{step} since {flat_s:.0f} s")


def _process(view: View, suspect_s: float) -> Tuple[str, Evidence]:
    reading = view.seen.processes
    if isinstance(reading, Missing):
        return SAYS_NOTHING, Evidence("processes", f"cannot be read: {reading.reason}")
    waiting = [p for p in reading.alive if p.state == "D"]
    if waiting:
        return EXPLAINS, Evidence("processes", f"process {waiting[0].pid} waits for I/O (state D, {waiting[0].wchan})")
    if any(p.tracer_pid for p in reading.alive):
        return EXPLAINS, Evidence("processes", "a debugger is attached")
    if reading.compilers:
        return EXPLAINS, Evidence("processes", f"{reading.compilers} compiler processes are at work")
    idle_s = view.watched_s(view.attempt.busy_at_s)
    if idle_s >= QUIET_FRAC * suspect_s:
        return AGREES, Evidence("CPU idle", round(idle_s), "s")
    if _all_spin(view):
        return AGREES, Evidence("CPU", "busy, while every GPU at work spins")
    return EXPLAINS, Evidence("processes", "the processes use the CPU")


def _gpu(view: View, suspect_s: float) -> Tuple[str, Evidence]:
    if isinstance(view.seen.gpus, Missing):
        return SAYS_NOTHING, Evidence("GPUs", f"cannot be read: {view.seen.gpus.reason}")
    if view.seen.gpus.absent is not None:
        return SAYS_NOTHING, Evidence("GPUs", view.seen.gpus.absent)
    kinds = sorted(set(view.work.values()))
    text = ", ".join(f"{list(view.work.values()).count(kind)} {kind}" for kind in kinds)
    if not kinds or gpuwork.UNKNOWN in kinds or view.seen.gpus.stuck_s:
        return SAYS_NOTHING, Evidence("GPUs", text or "none")
    worked = view.attempt.gpu_worked_at_s
    if worked is not None and view.watched_s(worked) < QUIET_FRAC * suspect_s:
        return EXPLAINS, Evidence("GPUs", f"a GPU did work {view.watched_s(worked):.0f} s ago")
    return AGREES, Evidence("GPUs", text)


def _growth(view: View, suspect_s: float) -> Tuple[str, Evidence]:
    attempt = view.attempt
    if attempt.written_bytes is None or attempt.read_bytes is None or isinstance(view.seen.log, Missing):
        return SAYS_NOTHING, Evidence("bytes", "cannot be read")
    moved_s = view.watched_s(attempt.moved_at_s)
    log_s = view.watched_s(attempt.log_grew_at_s)
    if moved_s < QUIET_FRAC * suspect_s:
        return EXPLAINS, Evidence("bytes", f"bytes moved {moved_s:.0f} s ago")
    if log_s < QUIET_FRAC * suspect_s:
        return EXPLAINS, Evidence("bytes", f"the log grew {log_s:.0f} s ago")
    return AGREES, Evidence("no bytes moved", round(min(moved_s, log_s)), "s")


def _culprit(view: View, policy: Policy, answers: List[str]) -> Tuple[str, str, Tuple[Evidence, ...]]:
    """Who stands out, the cause that names it, and the evidence; an empty culprit allows no kill.

    A family that says nothing might have explained the silence: what is not known kills nobody.
    """
    if isinstance(view.seen.progress, Missing):
        return "", "none", (Evidence("progress", f"cannot be read: {view.seen.progress.reason}"),)
    gpus = view.seen.gpus
    absent = isinstance(gpus, GpusReading) and gpus.absent is not None
    if SAYS_NOTHING in (answers[0], answers[2]) or (answers[1] == SAYS_NOTHING and not absent):
        return "", "none", ()
    if view.attempt.socket_bytes is None:
        return (
            "",
            "none",
            (Evidence("sockets", "their byte counters cannot be read, so it is not known that nothing arrives"),),
        )
    pair = equal_stacks(view.seen.stacks, view.attempt.step_changed_at_s, policy.stacks_apart_s)
    if pair is not None:
        cause, text = name_stacks(pair[1].summary)
        if _all_spin(view) and cause == "lock_deadlock":
            cause = "nccl_spin"
        apart = pair[1].at_s - pair[0].at_s
        lines = tuple(Evidence("stack", line) for line in pair[1].summary[:12])
        return text, cause, (Evidence("equal stack samples apart", round(apart), "s"), *lines)
    if _all_spin(view):
        return "every GPU at work spins at idle power", "nccl_spin", ()
    return "", "none", ()


def equal_stacks(
    stacks: Union[StacksReading, Missing], since_s: float, apart_s: float
) -> Optional[Tuple[StackSample, StackSample]]:
    """The widest pair of equal samples after ``since_s`` and at least ``apart_s`` apart, if the newest is in it."""
    if isinstance(stacks, Missing):
        return None
    fresh = [sample for sample in stacks.samples if sample.at_s > since_s]
    if not fresh:
        return None
    newest = fresh[-1]
    run: List[StackSample] = []
    for sample in reversed(fresh):
        if sample.digest != newest.digest:
            break
        run.append(sample)
    return (run[-1], newest) if newest.at_s - run[-1].at_s >= apart_s else None


def name_stacks(summary: Tuple[str, ...]) -> Tuple[str, str]:
    """(cause, sentence) for stacks that stand still."""
    text = "\n".join(summary)
    if "compile_fx_backward" in text or ("compile_lock" in text and "autograd" in text):
        return "compile_deadlock", "threads wait for the compiler's lock and its holder for them"
    return "lock_deadlock", f"{len(summary)} threads stand still at the same place in two looks"


def _all_spin(view: View) -> bool:
    """Some GPU spins and none does work: a look that is missing a card says no."""
    if not isinstance(view.seen.gpus, GpusReading):
        return False
    kinds = set(view.work.values())
    return gpuwork.SPINNING in kinds and not kinds & set(gpuwork.AT_WORK) and gpuwork.UNKNOWN not in kinds
