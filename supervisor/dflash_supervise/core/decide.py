"""One pass of the brain: look at what is, say what it means, want what follows. Pure.

``decide`` is level-triggered: each tick judges the present, so a start, a crash of the agent and a doubled message are
all just the next look. The hands refuse an action whose fence (the attempt) or precondition no longer holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Tuple

from . import budget, ending, follow_up, incidents
from .actions import Action, Continue, EndStale, Launch, Next, SampleStacks, Stop
from .assessment import Assessment
from .facts import Goal, Observation, ProcessesReading
from .memory import EndedAttempt, Incident, Memory, Restart, StopDecision
from .notes import notes
from .policy import Policy
from .rules.hang import hang
from .rules.stale import stale
from .rules.stopped_process import stopped_process
from .rules.worker_lost import worker_lost
from .verdicts import Finding, Status, Verdict
from .view import View, fold, work_classes


@dataclass(frozen=True)
class Snapshot:
    """Everything a decision rests on. The same snapshot gives the same decision."""

    goal: Goal
    policy: Policy
    observation: Observation
    memory: Memory
    kind: str = "foreign"  # bundled, foreign, adopted


@dataclass(frozen=True)
class Decision:
    """What was concluded and what is wanted. ``incidents`` are those that changed, ``ended`` attempts newly over."""

    memory: Memory
    assessment: Assessment
    actions: Tuple[Action, ...] = ()
    incidents: Tuple[Incident, ...] = ()
    ended: Tuple[EndedAttempt, ...] = ()


def decide(snapshot: Snapshot) -> Decision:
    """Judge one observation and say what is wanted now."""
    before = snapshot.memory
    memory = _goal(_count_restart(fold(before, snapshot.observation), before), snapshot)
    view = View(snapshot.observation.at_s, snapshot.observation, memory, work_classes(snapshot.observation))
    if view.attempt.number > 0 and not _over(view) and (view.seen.exit is None or _detached(view, snapshot.kind)):
        memory, assessment, actions = _living(view, snapshot)
    else:
        memory, assessment, actions = _at_rest(view, snapshot)
    memory = ending.close_cured(memory, view)
    assessment = replace(assessment, notes=notes(view, snapshot.policy))
    known = {incident.id: incident for incident in before.incidents}
    changed = tuple(incident for incident in memory.incidents if known.get(incident.id) != incident)
    numbers = {ended.number for ended in before.ended}
    ended = tuple(one for one in memory.ended if one.number not in numbers)
    return Decision(memory, assessment, actions, changed, ended)


def _count_restart(memory: Memory, before: Memory) -> Memory:
    """A new attempt that nobody asked for by hand costs one restart of its predecessor's cause."""
    number = memory.attempt.number
    last = next((ended for ended in memory.ended if ended.number == number - 1), None)
    if number == before.attempt.number or last is None or last.person or memory.goal_generation > last.generation:
        return memory
    launched = Restart(memory.last_at_s, last.cause, number)
    return replace(memory, restarts=budget.remember(memory, launched))


def _over(view: View) -> bool:
    return any(ended.number == view.attempt.number for ended in view.memory.ended)


def _detached(view: View, kind: str) -> bool:
    """A launcher that ended well and left its work running: the attempt ends when its set is empty (safety rule 10)."""
    exited = view.seen.exit
    return kind == "foreign" and exited is not None and exited.code == 0 and _leftover(view) > 0


def _goal(memory: Memory, snapshot: Snapshot) -> Memory:
    """A newer goal opens a new chapter: what was given up may be tried again, what was final is not."""
    goal = snapshot.goal
    if goal.generation > memory.goal_generation:
        memory = replace(memory, goal_generation=goal.generation)
        if goal.want == "run":
            memory = replace(memory, given_up="", final=None)
    number, now = memory.attempt.number, snapshot.observation.at_s
    if number == 0 or memory.stop is not None or any(ended.number == number for ended in memory.ended):
        return memory
    if goal.want == "stop":
        return replace(memory, stop=_by_person(number, "the goal is stop", now))
    if goal.end_attempt == number:
        return replace(memory, stop=_by_person(number, "a restart was asked for", now))
    return memory


def _by_person(number: int, because: str, now_s: float) -> StopDecision:
    return StopDecision(number, because, Verdict.STOPPED, "none", now_s, person=True)


def _held(view: View, goal: Goal) -> bool:
    return goal.want == "hold" and (goal.hold_until_s is None or view.now_s < goal.hold_until_s)


# ---- an attempt lives


def _living(view: View, snapshot: Snapshot) -> Tuple[Memory, Assessment, Tuple[Action, ...]]:
    policy, memory = snapshot.policy, view.memory
    held = _held(view, snapshot.goal)
    if held:
        memory = replace(memory, watching_since_s=view.now_s)  # the end of a hold opens a new window
        view = replace(view, memory=memory)
    findings = (worker_lost(view, policy), stopped_process(view, policy), hang(view, policy))
    if memory.stop is None:  # from then on evidence and incident are frozen: the stop itself makes the log grow
        memory = replace(memory, incidents=incidents.track(memory.incidents, findings, view.attempt.number, view.now_s))
    accused = [finding for finding in findings if finding.verdict is not None]
    worst = next((finding for finding in accused if finding.status is Status.FAILING), accused[0] if accused else None)
    actions: Tuple[Action, ...] = ()
    upcoming = Next("nothing")
    if memory.stop is None and worst is not None and not held:
        memory, actions, upcoming = _act_on(worst, view, memory, snapshot)
    if memory.stop is not None and memory.stop.attempt == view.attempt.number:
        stop = memory.stop
        actions = (Stop(stop.attempt, stop.because, policy.grace_s, stop.incident),)
        upcoming = Next("stop", 0.0, stop.because)
    return memory, _assess_living(view, worst, findings, upcoming), actions


def _assess_living(view: View, worst: Optional[Finding], findings: Tuple[Finding, ...], upcoming: Next) -> Assessment:
    number, phase = view.attempt.number, view.phase
    if worst is not None and worst.verdict is not None:
        suspected = worst.status is Status.PENDING
        return Assessment(number, worst.verdict, worst.cause, worst.reason, suspected, phase, (), findings, upcoming)
    if not view.stepped:
        text = "attempt {} is starting{}".format(number, ": " + phase if phase else "")
        return Assessment(number, Verdict.STARTING, "none", text, False, phase, (), findings, upcoming)
    text = "step {}, {}".format(view.attempt.step, phase or "training")
    return Assessment(number, Verdict.RUNNING, "none", text, False, phase, (), findings, upcoming)


def _act_on(worst: Finding, view: View, memory: Memory, snapshot: Snapshot) -> Tuple[Memory, Tuple[Action, ...], Next]:
    """A heuristic finding: sample, continue, stop or page. Only ``auto`` acts, and only with a named culprit."""
    policy, number = snapshot.policy, view.attempt.number
    assert worst.verdict is not None
    incident = incidents.incident_id(number, worst.verdict, worst.cause)
    acts = policy.preset == "auto" and snapshot.kind != "adopted"
    if worst.cause == "stopped_process":
        return _continue_or_page(worst, view, memory, policy, acts)
    sample: Tuple[Action, ...] = ()
    if worst.verdict is Verdict.HANG:
        sample = (SampleStacks(number, worst.reason, incident),)
    if worst.status is Status.PENDING:
        left = max(0.0, (worst.confirm_s or 0.0) - worst.held_s)
        return memory, sample, Next("restart" if acts else "page", left, "if nothing moves until then")
    if not acts or not worst.culprit or not _is_open(memory, incident):
        why = "the policy only watches" if not acts else "no culprit is named, so nobody is killed for it"
        return (
            ending.page(memory, incident, f"a person is called: {why}"),
            sample,
            Next("page", 0.0, why),
        )
    stop = StopDecision(number, worst.reason, worst.verdict, worst.cause, view.now_s, incident, worst.key_line)
    memory = ending.announce(replace(memory, stop=stop), stop, view, snapshot.policy, snapshot.kind)
    return memory, (), Next("stop", 0.0, worst.reason)


def _is_open(memory: Memory, incident: str) -> bool:
    found = incidents.find(memory.incidents, incident)
    return found is not None and found.state == "open"


def _continue_or_page(
    worst: Finding, view: View, memory: Memory, policy: Policy, acts: bool
) -> Tuple[Memory, Tuple[Action, ...], Next]:
    number = view.attempt.number
    incident = incidents.incident_id(number, Verdict.HANG, worst.cause)
    if worst.status is Status.PENDING:
        left = max(0.0, policy.stopped_s - worst.held_s)
        return memory, (), Next("continue" if acts else "page", left, "if it is still stopped then")
    if not acts:
        return (
            ending.page(memory, incident, "a person is called: the policy only watches"),
            (),
            Next("page", 0.0),
        )
    sent = view.attempt.continued_at_s
    if sent is None:
        memory = replace(memory, attempt=replace(memory.attempt, continued_at_s=view.now_s))
        return (
            memory,
            (Continue(number, worst.reason, incident),),
            Next("wait", policy.stopped_cure_s, "one SIGCONT was sent"),
        )
    if view.now_s - sent < policy.stopped_cure_s:
        return (
            memory,
            (),
            Next("page", policy.stopped_cure_s - (view.now_s - sent), "if SIGCONT did not help"),
        )
    return ending.page(memory, incident, "a person is called: SIGCONT did not help"), (), Next("page", 0.0)


# ---- no attempt lives


def _at_rest(view: View, snapshot: Snapshot) -> Tuple[Memory, Assessment, Tuple[Action, ...]]:
    memory = view.memory
    if view.attempt.number > 0 and not _over(view):
        memory = ending.record_end(view, memory, snapshot.policy, snapshot.kind)
    view = replace(view, memory=memory)
    if _leftover(view) and view.attempt.number > 0 and _may_act(view, snapshot):
        # Ended, yet processes of its set live on: they end before anything else.
        action = Stop(
            view.attempt.number,
            f"the attempt is over and {_leftover(view)} of its processes live",
            snapshot.policy.grace_s,
        )
        return memory, follow_up.assess_end(view, (), Next("stop", 0.0, action.because), False), (action,)
    finding = stale(view)
    if finding.status is not Status.UNKNOWN and follow_up.gpus_matter(memory):
        memory = replace(
            memory, incidents=incidents.track(memory.incidents, (finding,), view.attempt.number, view.now_s)
        )
        view = replace(view, memory=memory)
    return _next_launch(view, snapshot, finding)


def _may_act(view: View, snapshot: Snapshot) -> bool:
    """Only watching means that nobody is signalled: an observed, adopted or held run."""
    return snapshot.kind != "adopted" and snapshot.policy.preset != "observe" and not _held(view, snapshot.goal)


def _leftover(view: View) -> int:
    reading = view.seen.processes
    return len(reading.alive) if isinstance(reading, ProcessesReading) else 0


def _next_launch(view: View, snapshot: Snapshot, finding: Finding) -> Tuple[Memory, Assessment, Tuple[Action, ...]]:
    memory, goal, number = view.memory, snapshot.goal, view.attempt.number
    plan = follow_up.plan(view, goal, snapshot.policy, snapshot.kind)
    if plan.final and not follow_up.looks_again(view, finding, snapshot.policy):
        memory = replace(memory, final=plan.final, stop=None)
        return memory, follow_up.assess_end(replace(view, memory=memory), (finding,), plan.next, True), ()
    if not plan.launch or _held(view, goal):
        upcoming = Next("wait", None, "the run is on hold") if _held(view, goal) else plan.next
        return memory, follow_up.assess_end(view, (finding,), upcoming, False), ()
    proof = view.seen.proof
    if proof is not None and proof.stale_ours and not proof.foreign and _may_act(view, snapshot):
        end = EndStale(number + 1, finding.reason, incidents.incident_id(number, Verdict.STALE_PROCESS, finding.cause))
        return (
            memory,
            follow_up.assess_stale(view, finding, Next("stop", 0.0, "leftovers are ended first")),
            (end,),
        )
    if proof is None or not proof.free:
        return follow_up.wait_for_proof(view, memory, finding, snapshot.policy)
    if isinstance(view.seen.processes, ProcessesReading) and view.seen.processes.alive:
        return (
            memory,
            follow_up.assess_end(view, (finding,), Next("wait", None, "processes are left"), False),
            (),
        )
    return follow_up.launch(view, memory, plan, finding)


def launch_number(actions: Tuple[Action, ...]) -> Optional[int]:
    """The attempt that these actions would start, for tests and replay."""
    return next((action.attempt for action in actions if isinstance(action, Launch)), None)
