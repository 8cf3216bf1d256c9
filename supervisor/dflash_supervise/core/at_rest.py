"""No attempt lives: record an end, clear what is left of it, and let what follows wait for its time and its proof."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

from . import ending, follow_up, goals, incidents
from .actions import Action, EndStale, Next
from .assessment import Assessment
from .facts import Goal, HostReading
from .leftover import end_leftover, spared
from .memory import LaunchDecision, Memory
from .policy import Policy
from .rules.stale import stale
from .verdicts import Finding, Status, Verdict
from .view import View, alive_count

Result = Tuple[Memory, Assessment, Tuple[Action, ...]]


def at_rest(view: View, goal: Goal, policy: Policy, kind: str) -> Result:
    """What is wanted while no attempt lives."""
    memory, number = view.memory, view.attempt.number
    left_s = goals.hold_left_s(goal, view.now_s)
    if number > 0 and follow_up.newest_end(memory) is None:
        memory = ending.record_end(view, memory, policy, kind, held=left_s is not None)
        view = replace(view, memory=memory)
    plan = follow_up.plan(view, goal, policy, kind)
    finding = stale(view)
    matters = plan.launch or follow_up.gpus_matter(memory)
    if finding.status is Status.OK or (finding.status is Status.FAILING and matters):
        memory = replace(memory, incidents=incidents.track(memory.incidents, (finding,), number, view.now_s))
        view = replace(view, memory=memory)
    may_act = kind != "adopted" and policy.preset != "observe" and left_s is None
    if alive_count(view.seen) and number > 0 and may_act:
        reason = spared(view, goal, policy, kind)
        if not reason:
            return _without_launch(end_leftover(view, plan, policy))
        return _without_launch((memory, follow_up.assess_end(view, (finding,), Next("wait", None, reason), False), ()))
    if plan.final and not follow_up.looks_again(view, finding, policy):
        memory = replace(memory, final=plan.final, stop=None)
        assessment = follow_up.assess_end(replace(view, memory=memory), (finding,), plan.next, True)
        return _without_launch((memory, assessment, ()))
    if left_s is not None:
        return _without_launch((memory, follow_up.assess_end(view, (finding,), goals.on_hold(left_s), False), ()))
    if not plan.launch:
        return _without_launch(_wait(view, plan, finding, policy))
    return _launch_when_free(view, plan, finding, policy, may_act)


def _without_launch(result: Result) -> Result:
    memory, assessment, actions = result
    return replace(memory, launch=None), assessment, actions


def _wait(view: View, plan: follow_up.Plan, finding: Finding, policy: Policy) -> Result:
    """It is not time yet, or there is no room."""
    memory, upcoming = view.memory, plan.next
    if plan.needs_room and _is_bad_enough(view, policy):
        last = follow_up.newest_end(memory)
        assert last is not None, "only an end can ask for room"
        incident = incidents.incident_id(last.number, last.verdict, last.cause)
        memory = ending.page(memory, incident, "waiting for free space; it is restarted as soon as there is some")
    if upcoming.what == "restart" and finding.status is Status.FAILING:
        upcoming = Next("wait", upcoming.in_s, f"then it may start again, if the GPUs are free: {finding.reason}")
    return memory, follow_up.assess_end(view, (finding,), upcoming, False), ()


def _is_bad_enough(view: View, policy: Policy) -> bool:
    """A disk that is known to be full is told at once; one that does not say is asked for a while."""
    host, last = view.seen.host, follow_up.newest_end(view.memory)
    known = isinstance(host, HostReading) and host.disk_free_bytes is not None
    return known or (last is not None and view.now_s - last.ended_at_s >= policy.start_silent_s)


def _launch_when_free(view: View, plan: follow_up.Plan, finding: Finding, policy: Policy, may_act: bool) -> Result:
    memory, number, proof = view.memory, view.attempt.number, view.seen.proof
    if memory.launch is None:
        memory = replace(memory, launch=LaunchDecision(view.now_s))
        view = replace(view, memory=memory)
    if proof is None or not proof.free:
        if finding.cause == "leftover" and may_act:
            return _end_stale(view, finding, policy)
        return follow_up.wait_for_proof(view, memory, finding, policy)
    if alive_count(view.seen):
        upcoming = Next("wait", None, f"{alive_count(view.seen)} processes are left of attempt {number}")
        return memory, follow_up.assess_end(view, (finding,), upcoming, False), ()
    return follow_up.launch(view, memory, plan, finding)


def _end_stale(view: View, finding: Finding, policy: Policy) -> Result:
    """Leftovers of earlier runs end first; one that does not die is a person's matter, and is tried again."""
    memory, number = view.memory, view.attempt.number
    incident = incidents.incident_id(number, Verdict.STALE_PROCESS, finding.cause)
    upcoming = Next("stop", 0.0, "leftovers are ended first")
    if view.now_s - follow_up.open_since_s(view, finding) > policy.grace_s + 2 * policy.unkillable_s:
        memory = ending.page(memory, incident, "not started: a leftover does not die")
        upcoming = Next("wait", None, "a leftover does not die; tested again each second")
    end = EndStale(number + 1, finding.reason, incident)
    return memory, follow_up.assess_stale(view, finding, upcoming, True), (end,)
