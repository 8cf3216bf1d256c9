"""What follows from the newest end, or from there being no attempt yet: a launch, a wait, or the end of the run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Tuple

from . import causes, incidents
from .actions import NOTHING_NEXT, Action, Launch, Next
from .assessment import Assessment
from .ending import page
from .facts import Goal, HostReading
from .memory import EndedAttempt, Incident, Memory
from .policy import Policy
from .respond import respond
from .verdicts import Evidence, Finding, Status, Verdict
from .view import View


@dataclass(frozen=True)
class Plan:
    """What follows from the newest end: a launch (and why), a wait, or the end of the run."""

    launch: bool = False
    because: str = ""
    remedies: Tuple[str, ...] = ()
    final: Optional[Verdict] = None
    next: Next = NOTHING_NEXT


def plan(view: View, goal: Goal, policy: Policy, kind: str) -> Plan:
    """What the newest end (or the absence of any attempt) asks for, given the goal."""
    memory = view.memory
    last = _last(memory)
    if last is not None and last.verdict is Verdict.COMPLETED:
        return Plan(final=Verdict.COMPLETED)
    if goal.want == "stop":
        return Plan(final=Verdict.STOPPED)
    if memory.given_up:
        return Plan(
            final=last.verdict if last is not None else Verdict.STALE_PROCESS,
            next=Next("nothing", None, memory.given_up),
        )
    if last is None:
        return Plan() if kind == "adopted" else Plan(launch=True, because="the goal is run")
    if kind != "adopted" and (last.person or memory.goal_generation > last.generation):
        return Plan(launch=True, because="a person asked for it")
    response = respond(last, memory, policy, kind, view.now_s)
    if not response.restarts:
        return Plan(final=last.verdict, next=Next("nothing", None, response.text))
    due_in = last.ended_at_s + response.restart_in_s - view.now_s
    because = "{} of attempt {}: {}".format(
        last.cause if last.cause != "none" else last.verdict.value, last.number, response.text
    )
    if last.cause == "disk_full" and not _room(view, policy):
        return Plan(next=Next("wait", None, "free space is needed first"))
    if due_in > 0:
        return Plan(next=Next("restart", due_in, response.text), because=because)
    return Plan(launch=True, because=because, remedies=response.remedies)


def gpus_matter(memory: Memory) -> bool:
    """Is something on the GPUs this run's business: before a launch and after a failure, not after a good end."""
    last = _last(memory)
    return memory.final is None and (last is None or last.verdict not in (Verdict.COMPLETED, Verdict.STOPPED))


def looks_again(view: View, finding: Finding, policy: Policy) -> bool:
    """After a failed end, busy GPUs are looked at until it is known that the condition stays."""
    found = _stale_incident(view.memory, view.attempt.number, finding)
    if finding.status is not Status.FAILING or found is None or found.opened_at_s is None:
        return False
    return gpus_matter(view.memory) and view.now_s - found.opened_at_s < policy.stale_confirm_s


def launch(
    view: View, memory: Memory, following: Plan, finding: Finding
) -> Tuple[Memory, Assessment, Tuple[Action, ...]]:
    """Want the next attempt, with its remedies, on the ground of this tick's proof."""
    number = view.attempt.number + 1
    remedies = memory.remedies + tuple(one for one in following.remedies if one not in memory.remedies)
    memory = replace(memory, remedies=remedies, final=None)
    cause = next((one.id for one in incidents.unresolved(memory.incidents) if one.attempt == view.attempt.number), None)
    action = Launch(number, following.because, remedies, cause)
    view = replace(view, memory=memory)
    return (
        memory,
        assess_end(view, (finding,), Next("restart" if number > 1 else "start", 0.0, following.because), False),
        (action,),
    )


def wait_for_proof(
    view: View, memory: Memory, finding: Finding, policy: Policy
) -> Tuple[Memory, Assessment, Tuple[Action, ...]]:
    """The GPUs are not proven free: refuse a first start, hold a restart back and test again each tick."""
    if finding.status is not Status.FAILING:
        return memory, assess_end(view, (finding,), Next("wait", None, finding.reason), False), ()
    found = _stale_incident(memory, view.attempt.number, finding)
    incident = found.id if found is not None else ""
    since = found.opened_at_s if found is not None and found.opened_at_s is not None else view.now_s
    confirmed = view.now_s - since >= policy.stale_confirm_s
    if not confirmed:
        return (
            memory,
            assess_stale(
                view,
                finding,
                Next("wait", policy.stale_confirm_s - (view.now_s - since), "it may be going away"),
                True,
            ),
            (),
        )
    memory = page(
        memory,
        incident,
        "not started: the GPUs are not free" if view.attempt.number == 0 else "not restartable until the GPUs are free",
    )
    if view.attempt.number == 0:
        memory = replace(memory, given_up=finding.reason, final=Verdict.STALE_PROCESS)
        return (
            memory,
            assess_stale(view, finding, Next("nothing", None, "start again when the GPUs are free"), False, True),
            (),
        )
    return memory, assess_stale(view, finding, Next("wait", None, "tested again each second")), ()


def assess_end(view: View, findings: Tuple[Finding, ...], upcoming: Next, final: bool) -> Assessment:
    """The verdict while no attempt lives."""
    last, number = _last(view.memory), view.attempt.number
    if view.memory.final is Verdict.STOPPED:
        return Assessment(number, Verdict.STOPPED, "none", "stopped as asked", False, "", (), findings, upcoming, final)
    if last is None:
        stuck = view.memory.final is Verdict.STALE_PROCESS
        verdict = Verdict.STALE_PROCESS if stuck else Verdict.STARTING
        sentence = view.memory.given_up if stuck else "about to start"
        return Assessment(number, verdict, "none", sentence, False, "", (), findings, upcoming, final)
    return Assessment(
        number,
        last.verdict,
        last.cause,
        last.sentence,
        False,
        "",
        (),
        (*findings, _finding(last)),
        upcoming,
        final,
    )


def assess_stale(
    view: View, finding: Finding, upcoming: Next, suspected: bool = False, final: bool = False
) -> Assessment:
    number = view.attempt.number
    return Assessment(
        number,
        Verdict.STALE_PROCESS,
        finding.cause,
        finding.reason,
        suspected,
        "",
        (),
        (finding,),
        upcoming,
        final,
    )


def _finding(last: EndedAttempt) -> Finding:
    """The end as a finding, so that ``why`` shows what the verdict rests on."""
    evidence = [Evidence("exit code", last.code)] if last.code is not None else []
    if last.signal is not None:
        evidence.append(Evidence("signal", causes.SIGNAL_NAMES.get(last.signal, str(last.signal))))
    evidence.append(Evidence("ran for", round(last.ended_at_s - last.launched_at_s, 1), "s"))
    failed = last.verdict not in (Verdict.COMPLETED, Verdict.STOPPED)
    status = Status.FAILING if failed else Status.OK
    return Finding(
        "ended",
        status,
        last.sentence,
        last.verdict,
        last.cause,
        evidence=tuple(evidence),
        key_line=last.key_line,
    )


def _last(memory: Memory) -> Optional[EndedAttempt]:
    return next((ended for ended in memory.ended if ended.number == memory.attempt.number and ended.number > 0), None)


def _stale_incident(memory: Memory, number: int, finding: Finding) -> Optional[Incident]:
    return incidents.find(memory.incidents, incidents.incident_id(number, Verdict.STALE_PROCESS, finding.cause))


def _room(view: View, policy: Policy) -> bool:
    """Is there known free space for two checkpoints? Unknown is not room."""
    host = view.seen.host
    return (
        isinstance(host, HostReading)
        and host.disk_free_bytes is not None
        and host.disk_free_bytes > policy.disk_low_bytes
    )
