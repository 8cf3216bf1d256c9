"""An attempt lives: judge it, and act on a confirmed finding only when nothing forbids it and a culprit is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Tuple

from . import causes, ending, goals, incidents
from .actions import Action, Continue, Next, SampleStacks, Stop
from .assessment import Assessment
from .facts import Goal
from .leftover import unkillable
from .memory import Memory, StopDecision
from .policy import Policy
from .rules.hang import hang
from .rules.stopped_process import stopped_process
from .rules.worker_lost import worker_lost
from .verdicts import Finding, Status, Verdict
from .view import View

Result = Tuple[Memory, Tuple[Action, ...], Next]


def living(view: View, goal: Goal, policy: Policy, kind: str) -> Tuple[Memory, Assessment, Tuple[Action, ...]]:
    """What an attempt that is not over is, and what is wanted about it."""
    memory, left_s = view.memory, goals.hold_left_s(goal, view.now_s)
    if memory.stop is not None and not memory.stop.person and left_s is not None and view.seen.stop is None:
        memory = replace(memory, stop=None)  # nothing was sent yet, and a person said hold
    findings = (worker_lost(view, policy), stopped_process(view, policy), hang(view, policy))
    if memory.stop is None:  # from then on evidence and incident are frozen: the stop itself makes the log grow
        memory = replace(memory, incidents=incidents.track(memory.incidents, findings, view.attempt.number, view.now_s))
    accused = [finding for finding in findings if finding.verdict is not None]
    worst = next((finding for finding in accused if finding.status is Status.FAILING), accused[0] if accused else None)
    actions: Tuple[Action, ...] = ()
    upcoming = Next("nothing") if left_s is None else goals.on_hold(left_s)
    if memory.stop is None and worst is not None and left_s is None:
        memory, actions, upcoming = _answer(worst, view, memory, policy, kind)
    if memory.stop is not None:
        stop = memory.stop
        actions = (Stop(stop.attempt, stop.because, policy.grace_s, stop.incident),)
        upcoming = Next("stop", 0.0, stop.because)
        memory, stuck = unkillable(view, memory)
        if stuck:
            upcoming = Next("wait", None, stuck)
    if memory.stop is not None and not memory.stop.person:
        return memory, _assess_stopping(view, memory.stop, findings, upcoming), actions
    return memory, _assess(view, worst, findings, upcoming, kind), actions


def _assess_stopping(view: View, stop: StopDecision, findings: Tuple[Finding, ...], upcoming: Next) -> Assessment:
    """What it is ended for stays its verdict: SIGTERM alone makes a hung process move."""
    number, phase = view.attempt.number, view.phase
    return Assessment(number, stop.verdict, stop.cause, stop.because, False, phase, (), findings, upcoming)


def _assess(
    view: View, worst: Optional[Finding], findings: Tuple[Finding, ...], upcoming: Next, kind: str
) -> Assessment:
    number, phase = view.attempt.number, view.phase
    if worst is not None and worst.verdict is not None:
        suspected = worst.status is Status.PENDING
        return Assessment(number, worst.verdict, worst.cause, worst.reason, suspected, phase, (), findings, upcoming)
    if not view.stepped:
        text = "attempt {} is starting{}".format(number, ": " + phase if phase else "")
        if kind == "adopted":
            text = "it lives, and no step of it has been seen"
        return Assessment(number, Verdict.STARTING, "none", text, False, phase, (), findings, upcoming)
    # Without the step: the sentence is told when it changes, and an old number beside a new one looks like a lie.
    text = "{} goes on".format(phase or "training")
    return Assessment(number, Verdict.RUNNING, "none", text, False, phase, (), findings, upcoming)


def _answer(worst: Finding, view: View, memory: Memory, policy: Policy, kind: str) -> Result:
    """A heuristic finding: sample, continue, stop or page. Only ``auto`` acts, and only with a named culprit."""
    assert worst.verdict is not None
    number, forbidden = view.attempt.number, _forbidden(view, policy, kind)
    incident = incidents.incident_id(number, worst.verdict, worst.cause)
    if worst.cause == "stopped_process":
        return _continue_or_page(worst, view, memory, policy, forbidden)
    sample: Tuple[Action, ...] = ()
    if worst.verdict is Verdict.HANG and not view.traced:
        sample = (SampleStacks(number, worst.reason, incident),)
    why = forbidden or ("" if worst.culprit else "no culprit is named, so nobody is killed for it")
    if worst.status is Status.PENDING:
        left_s = max(0.0, (worst.confirm_s or 0.0) - worst.held_s)
        if forbidden:
            return memory, sample, Next("page", left_s, f"if nothing moves until then; {forbidden}")
        if why:
            text = "if nothing moves until then, it is ended when a culprit is named; else a person is called"
            return memory, sample, Next("wait", left_s, text)
        return memory, sample, Next("stop", left_s, "if nothing moves until then")
    if why:
        return _page(memory, incident, why, sample)
    stop = StopDecision(
        number, worst.reason, worst.verdict, worst.cause, view.now_s, incident, worst.key_line, worst.evidence
    )
    return ending.announce(replace(memory, stop=stop), stop, view, policy, kind), (), Next("stop", 0.0, worst.reason)


def _page(memory: Memory, incident: str, why: str, sample: Tuple[Action, ...] = ()) -> Result:
    found = incidents.find(memory.incidents, incident)
    if found is not None and found.response == causes.PAGE:
        return memory, sample, Next("wait", None, f"a person was called: {why}")
    return ending.page(memory, incident, f"a person is called: {why}"), sample, Next("page", 0.0, why)


def _forbidden(view: View, policy: Policy, kind: str) -> str:
    """Why nothing heuristic may touch this attempt; empty when it may."""
    if policy.preset != "auto" or kind == "adopted":
        return "the policy only watches"
    if view.traced is None:
        return "it cannot be seen whether a debugger is attached"
    return "a debugger is attached" if view.traced else ""


def _continue_or_page(worst: Finding, view: View, memory: Memory, policy: Policy, forbidden: str) -> Result:
    """One SIGCONT an attempt: somebody who stops it again means it."""
    number, sent = view.attempt.number, view.attempt.continued_at_s
    incident = incidents.incident_id(number, Verdict.HANG, worst.cause)
    if worst.status is Status.PENDING:
        left_s = max(0.0, policy.stopped_s - worst.held_s)
        what = "continue" if not forbidden and sent is None else "page"
        return memory, (), Next(what, left_s, "if it is still stopped then")
    if forbidden:
        return _page(memory, incident, forbidden)
    if sent is None:
        text = "one SIGCONT is sent; whoever stopped it should know"
        memory = ending.page(memory, incident, text, response=causes.WAIT)
        memory = replace(memory, attempt=replace(memory.attempt, continued_at_s=view.now_s))
        upcoming = Next("wait", policy.stopped_cure_s, "one SIGCONT was sent")
        return memory, (Continue(number, worst.reason, incident),), upcoming
    if view.now_s - sent < policy.stopped_cure_s:
        left_s = policy.stopped_cure_s - (view.now_s - sent)
        return memory, (), Next("page", left_s, "if SIGCONT did not help")
    return _page(memory, incident, "SIGCONT did not help")
