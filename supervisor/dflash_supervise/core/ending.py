"""An attempt is over: what it was, which incident that is, and when the incident ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Tuple

from . import causes, incidents
from .memory import EndedAttempt, Incident, Memory, StopDecision
from .policy import Policy
from .respond import Response, respond
from .rules.ended import End, judge_end
from .verdicts import Evidence, Verdict
from .view import View

KEEP_ENDED = 50


def record_end(view: View, memory: Memory, policy: Policy, kind: str, *, held: bool) -> Memory:
    """Remember the end of the attempt in view, and open the incident that it is.

    Args:
        held: the run is on hold, so that what the response table answers comes after it.
    """
    end = judge_end(view, kind)
    assert end is not None, "record_end is for attempts whose exit is known"
    stop = memory.stop if memory.stop is not None and memory.stop.attempt == view.attempt.number else None
    ended = _ended(view, memory, end, stop, policy)
    memory = replace(
        memory,
        ended=(*(replace(one, evidence=()) for one in memory.ended), ended)[-KEEP_ENDED:],
        incidents=incidents.resolve(memory.incidents, _over_with_it(memory, ended, stop), view.now_s),
        best_step=max(memory.best_step, ended.step or 0, ended.checkpoint_step or 0),
        stop=None,
    )
    if ended.verdict in (Verdict.COMPLETED, Verdict.STOPPED) or ended.person:
        return memory
    if stop is not None:
        return memory  # its incident was announced when the stop was decided
    response = respond(ended, memory, policy, kind, view.now_s)
    if held and response.restarts:
        response = replace(response, text=f"on hold; when that ends: {response.text}")
    return replace(memory, incidents=incidents.put(memory.incidents, _incident(view, ended, end, response)))


def _over_with_it(memory: Memory, ended: EndedAttempt, stop: Optional[StopDecision]) -> Tuple[Incident, ...]:
    """What a living attempt was accused of ends with it, save the reason why it was ended."""
    reason = stop.incident if stop is not None else None
    return tuple(
        one
        for one in incidents.unresolved(memory.incidents)
        if one.attempt == ended.number and one.id != reason and incidents.rule_of(one) not in ("", "stale")
    )


def announce(memory: Memory, stop: StopDecision, view: View, policy: Policy, kind: str) -> Memory:
    """Write into a confirmed incident what will be done about it, at the moment it is decided."""
    found = incidents.find(memory.incidents, stop.incident or "")
    assert found is not None, "a stop is decided on an open incident"
    ended = _ended(view, memory, None, stop, policy)
    response = respond(ended, memory, policy, kind, view.now_s)
    told = replace(
        found,
        cause=stop.cause,
        sentence=stop.because,
        key_line=stop.key_line,
        evidence=stop.evidence or found.evidence,
        severity=response.severity,
        response=response.action,
        response_text=response.text,
        steps_lost=_lost(ended),
    )
    return replace(memory, incidents=incidents.put(memory.incidents, told))


def page(memory: Memory, incident: str, text: str, *, response: str = causes.PAGE) -> Memory:
    """A confirmed incident that a person must hear of, once."""
    found = incidents.find(memory.incidents, incident)
    if found is None or found.state != "open" or found.response == causes.PAGE:
        return memory
    told = replace(found, severity="page", response=response, response_text=text)
    return replace(memory, incidents=incidents.put(memory.incidents, told))


def call_person(
    memory: Memory, attempt: int, verdict: Verdict, cause: str, sentence: str, text: str, now_s: float
) -> Memory:
    """Open an incident that nothing of ours can end; one that is open already stays as it is."""
    wanted = incidents.incident_id(attempt, verdict, cause)
    found = incidents.find(memory.incidents, wanted)
    if found is not None and found.state == "open":
        return page(memory, wanted, text)
    new = Incident(
        id=wanted,
        attempt=attempt,
        verdict=verdict,
        cause=cause,
        severity="page",
        state="open",
        since_s=now_s,
        sentence=sentence,
        evidence=(Evidence("seen", sentence),),
        response=causes.PAGE,
        response_text=text,
        opened_at_s=now_s,
    )
    return replace(memory, incidents=incidents.put(memory.incidents, new))


def close_cured(memory: Memory, view: View) -> Memory:
    """An incident of an earlier attempt is over once a later one has made a step, or the run is complete or stopped."""
    number, done = memory.attempt.number, memory.final in (Verdict.COMPLETED, Verdict.STOPPED)
    stepped = memory.attempt.first_step_at_s is not None and not any(e.number == number for e in memory.ended)
    over = [one for one in incidents.unresolved(memory.incidents) if done or (stepped and one.attempt < number)]
    return replace(memory, incidents=incidents.resolve(memory.incidents, over, view.now_s)) if over else memory


def _ended(
    view: View, memory: Memory, end: Optional[End], stop: Optional[StopDecision], policy: Policy
) -> EndedAttempt:
    attempt = view.attempt
    verdict, cause, sentence, key_line, where = Verdict.STOPPED, "none", "", "", ""
    if end is not None:
        verdict, cause, sentence, key_line, where = (
            end.verdict,
            end.cause,
            end.sentence,
            end.key_line,
            end.where,
        )
    if stop is not None and not (verdict is Verdict.COMPLETED and _surely_done(view)):
        verdict, cause, sentence, key_line = stop.verdict, stop.cause, stop.because, stop.key_line
    begun = stop.decided_at_s if stop is not None else view.now_s
    return EndedAttempt(
        number=attempt.number,
        verdict=verdict,
        cause=cause,
        sentence=sentence,
        fingerprint="|".join([cause, where, attempt.phase, str(attempt.step)]),
        ended_at_s=view.now_s,
        launched_at_s=attempt.launched_at_s,
        key_line=key_line,
        step=attempt.step,
        checkpoint_step=attempt.checkpoint_step,
        code=view.seen.exit.code if view.seen.exit is not None else None,
        signal=view.seen.exit.signal if view.seen.exit is not None else None,
        credited=_credited(view, memory, begun, policy),
        person=stop is not None and stop.person,
        evidence=stop.evidence if stop is not None else end.evidence if end is not None else (),
    )


def _surely_done(view: View) -> bool:
    """Whether an end that we asked for was that of training anyway: many programs answer SIGTERM with exit code 0."""
    step, total = view.attempt.step, view.attempt.steps_total
    reached = step is not None and total is not None and step >= total
    return reached or (view.seen.exit is not None and view.seen.exit.done)


def _credited(view: View, memory: Memory, begun_s: float, policy: Policy) -> bool:
    """A complete checkpoint that our own stop had no part in, well beyond all attempts so far."""
    saved = view.attempt.own_checkpoint_step
    if saved is None or saved < memory.best_step + policy.credit_steps:
        return False
    return begun_s - view.attempt.launched_at_s >= policy.credit_s


def _lost(ended: EndedAttempt) -> Optional[int]:
    return None if ended.step is None else max(0, ended.step - (ended.checkpoint_step or 0))


def _incident(view: View, ended: EndedAttempt, end: End, response: Response) -> Incident:
    return Incident(
        id=incidents.incident_id(ended.number, ended.verdict, ended.cause),
        attempt=ended.number,
        verdict=ended.verdict,
        cause=ended.cause,
        severity=response.severity,
        state="open",
        since_s=view.now_s,
        sentence=ended.sentence,
        key_line=ended.key_line,
        evidence=end.evidence,
        response=response.action,
        response_text=response.text,
        opened_at_s=view.now_s,
        steps_lost=_lost(ended),
    )
