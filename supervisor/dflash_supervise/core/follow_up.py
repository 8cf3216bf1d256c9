"""What follows from the newest end, or from there being no attempt yet: a launch, a wait, or the end of the run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Tuple

from . import causes, incidents
from .actions import NOTHING_NEXT, Action, Launch, Next
from .assessment import Assessment
from .ending import call_person, page
from .facts import Goal, HostReading
from .memory import EndedAttempt, Incident, Memory
from .policy import Policy
from .respond import respond
from .verdicts import Evidence, Finding, Status, Verdict
from .view import View

LAUNCH_SEEN_S = 60.0  # a launch shows within seconds; this long without one is a person's matter


@dataclass(frozen=True)
class Plan:
    """What follows from the newest end: a launch (and why), a wait, or the end of the run."""

    launch: bool = False
    because: str = ""
    remedies: Tuple[str, ...] = ()
    final: Optional[Verdict] = None
    next: Next = NOTHING_NEXT
    needs_room: bool = False


def plan(view: View, goal: Goal, policy: Policy, kind: str) -> Plan:
    """What the newest end (or the absence of any attempt) asks for, given the goal."""
    memory = view.memory
    last = newest_end(memory)
    if last is not None and last.verdict is Verdict.COMPLETED:
        return Plan(final=Verdict.COMPLETED)
    if goal.want == "stop":
        return Plan(final=Verdict.STOPPED)
    if last is None:
        if memory.final is not None:
            return Plan(final=memory.final, next=Next("nothing", None, memory.given_up))
        return Plan(launch=True, because="the goal is run")
    if memory.final is None and memory.again_after == last.number:
        return Plan(launch=True, because="a person asked for it")
    # Judged as of the end: what was said then stays true, also when the window of the budget has moved on.
    response = respond(last, memory, policy, kind, last.ended_at_s)
    if memory.final is not None or not response.restarts:
        return Plan(final=memory.final or last.verdict, next=Next("nothing", None, response.text))
    due_in = last.ended_at_s + response.restart_in_s - view.now_s
    because = "{} of attempt {}: {}".format(
        last.cause if last.cause != "none" else last.verdict.value, last.number, response.text
    )
    if last.cause == "disk_full" and not _room(view, policy):
        return Plan(next=Next("wait", None, "free space is needed first"), needs_room=True)
    if due_in > 0:
        return Plan(next=Next("restart", due_in, response.text))
    return Plan(launch=True, because=because, remedies=response.remedies)


def gpus_matter(memory: Memory) -> bool:
    """Is something on the GPUs this run's business: before a launch and after a failure, not after a good end."""
    last = newest_end(memory)
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
    assert memory.launch is not None, "what is asked for was wanted before"
    number = view.attempt.number + 1
    asked = view.now_s if memory.launch.asked_at_s is None else memory.launch.asked_at_s
    remedies = memory.remedies + tuple(one for one in following.remedies if one not in memory.remedies)
    memory = replace(memory, remedies=remedies, final=None, launch=replace(memory.launch, asked_at_s=asked))
    cause = next((one.id for one in incidents.unresolved(memory.incidents) if one.attempt == view.attempt.number), None)
    upcoming = Next("restart" if number > 1 else "start", 0.0, following.because)
    if view.now_s - asked >= LAUNCH_SEEN_S:
        text = f"attempt {number} was asked for {view.now_s - asked:.0f} s ago and has not begun"
        answer = "it is asked for again and again; the newest outcome says why it does not begin"
        memory = call_person(
            memory, view.attempt.number, Verdict.EARLY_CRASH, "launch_interrupted", text, answer, view.now_s
        )
        upcoming = Next("wait", None, text)
    assessment = assess_end(replace(view, memory=memory), (finding,), upcoming, False)
    return memory, assessment, (Launch(number, following.because, remedies, cause),)


def wait_for_proof(
    view: View, memory: Memory, finding: Finding, policy: Policy
) -> Tuple[Memory, Assessment, Tuple[Action, ...]]:
    """The GPUs are not proven free: refuse a first start, hold a restart back and test again each tick."""
    if finding.status is Status.UNKNOWN:
        return (
            _wait_for_an_answer(view, memory, finding, policy),
            assess_end(view, (finding,), Next("wait", None, finding.reason), False),
            (),
        )
    left_s = policy.stale_confirm_s - (view.now_s - open_since_s(view, finding))
    if left_s > 0:
        return memory, assess_stale(view, finding, Next("wait", left_s, "it may be going away"), True), ()
    first = view.attempt.number == 0
    memory = page(
        memory,
        incidents.incident_id(view.attempt.number, Verdict.STALE_PROCESS, finding.cause),
        "not started: the GPUs are not free" if first else "not restartable until the GPUs are free",
    )
    if first:
        memory = replace(memory, given_up=finding.reason, final=Verdict.STALE_PROCESS)
        upcoming = Next("nothing", None, "start again when the GPUs are free")
        return memory, assess_stale(view, finding, upcoming, False, True), ()
    return memory, assess_stale(view, finding, Next("wait", None, "tested again each second")), ()


def _wait_for_an_answer(view: View, memory: Memory, finding: Finding, policy: Policy) -> Memory:
    """Nobody says whether the GPUs are free. That starts nothing, and after a while a person hears of it."""
    number = view.attempt.number
    told = any(
        one.attempt == number and one.verdict is Verdict.STALE_PROCESS for one in incidents.unresolved(memory.incidents)
    )
    assert memory.launch is not None, "only what is wanted waits for a proof"
    if told or view.now_s - memory.launch.wanted_at_s < policy.start_silent_s:
        return memory
    answer = "not launched until it is known that the GPUs are free; asked again each second"
    return call_person(memory, number, Verdict.STALE_PROCESS, "none", finding.reason, answer, view.now_s)


def open_since_s(view: View, finding: Finding) -> float:
    """Since when the stale finding's incident is open; a failing one was opened in this tick at the latest."""
    found = _stale_incident(view.memory, view.attempt.number, finding)
    assert found is not None and found.opened_at_s is not None
    return found.opened_at_s


def assess_end(view: View, findings: Tuple[Finding, ...], upcoming: Next, final: bool) -> Assessment:
    """The verdict while no attempt lives."""
    last, number = newest_end(view.memory), view.attempt.number
    if view.memory.final is Verdict.STOPPED:
        return Assessment(number, Verdict.STOPPED, "none", "stopped as asked", False, "", (), findings, upcoming, final)
    if last is None:
        stuck = view.memory.final is Verdict.STALE_PROCESS
        verdict = Verdict.STALE_PROCESS if stuck else Verdict.STARTING
        sentence = view.memory.given_up if stuck else "about to start"
        cause = _refused_for(view.memory) if stuck else "none"
        return Assessment(number, verdict, cause, sentence, False, "", (), findings, upcoming, final)
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


def _refused_for(memory: Memory) -> str:
    """The cause that refused the first start; the GPUs may be free by now, the refusal stays what it was."""
    held = [one for one in memory.incidents if one.attempt == 0 and one.verdict is Verdict.STALE_PROCESS]
    return held[-1].cause if held else "none"


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
    evidence += [one for one in last.evidence if one not in evidence]
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


def newest_end(memory: Memory) -> Optional[EndedAttempt]:
    return next((ended for ended in memory.ended if ended.number == memory.attempt.number and ended.number > 0), None)


def _stale_incident(memory: Memory, number: int, finding: Finding) -> Optional[Incident]:
    return incidents.find(memory.incidents, incidents.incident_id(number, Verdict.STALE_PROCESS, finding.cause))


def _room(view: View, policy: Policy) -> bool:
    """Is more free than ``policy.disk_low_bytes``? Unknown is not room."""
    host = view.seen.host
    return (
        isinstance(host, HostReading)
        and host.disk_free_bytes is not None
        and host.disk_free_bytes > policy.disk_low_bytes
    )
