"""An attempt is over: what it was, which incident that is, and when the incident ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from . import causes, incidents
from .memory import EndedAttempt, Incident, Memory, StopDecision
from .policy import Policy
from .respond import Response, respond
from .rules.ended import End, judge_end
from .verdicts import Verdict
from .view import View

KEEP_ENDED = 50


def record_end(view: View, memory: Memory, policy: Policy, kind: str) -> Memory:
    """Remember the end of the attempt in view, and open the incident that it is."""
    end = judge_end(view, kind)
    assert end is not None, "record_end is for attempts whose exit is known"
    stop = memory.stop if memory.stop is not None and memory.stop.attempt == view.attempt.number else None
    ended = _ended(view, memory, end, stop, policy)
    memory = replace(
        memory,
        ended=((*memory.ended, ended))[-KEEP_ENDED:],
        best_step=max(memory.best_step, ended.checkpoint_step or 0) if ended.credited else memory.best_step,
        stop=None,
    )
    if ended.verdict in (Verdict.COMPLETED, Verdict.STOPPED) or ended.person:
        return memory
    if stop is not None:
        return memory  # its incident was announced when the stop was decided
    response = respond(ended, memory, policy, kind, view.now_s)
    return replace(memory, incidents=incidents.put(memory.incidents, _incident(view, ended, end, response)))


def announce(memory: Memory, stop: StopDecision, view: View, policy: Policy, kind: str) -> Memory:
    """Write into a confirmed incident what will be done about it, at the moment it is decided."""
    found = incidents.find(memory.incidents, stop.incident or "")
    if found is None:
        return memory
    ended = _ended(view, memory, None, stop, policy)
    response = respond(ended, memory, policy, kind, view.now_s)
    told = replace(
        found,
        severity=response.severity,
        response=response.action,
        response_text=response.text,
        steps_lost=_lost(ended),
    )
    return replace(memory, incidents=incidents.put(memory.incidents, told))


def page(memory: Memory, incident: str, text: str) -> Memory:
    """A confirmed incident that nobody but a person can end."""
    found = incidents.find(memory.incidents, incident)
    if found is None or found.state != "open" or found.response == causes.PAGE:
        return memory
    told = replace(found, severity="page", response=causes.PAGE, response_text=text)
    return replace(memory, incidents=incidents.put(memory.incidents, told))


def close_cured(memory: Memory, view: View) -> Memory:
    """An incident of an earlier attempt is over once a later one has made a step, or the run is complete."""
    number, done = memory.attempt.number, memory.final is Verdict.COMPLETED
    stepped = memory.attempt.first_step_at_s is not None and not any(e.number == number for e in memory.ended)
    if not stepped and not done:
        return memory
    for one in incidents.unresolved(memory.incidents):
        if one.attempt < number or done:
            closed = replace(one, state="resolved", resolved_at_s=view.now_s)
            memory = replace(memory, incidents=incidents.put(memory.incidents, closed))
    return memory


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
    if stop is not None and verdict is not Verdict.COMPLETED:
        verdict, cause, sentence, key_line = stop.verdict, stop.cause, stop.because, stop.key_line
    begun = memory.stop.decided_at_s if memory.stop is not None else view.now_s
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
        generation=memory.goal_generation,
        credited=_credited(view, memory, begun, policy),
        person=stop is not None and stop.person,
    )


def _credited(view: View, memory: Memory, begun_s: float, policy: Policy) -> bool:
    """A complete checkpoint, seen before our own stop began and well beyond the best so far (safety rule 9)."""
    attempt = view.attempt
    if attempt.checkpoint_step is None or attempt.checkpoint_seen_at_s > begun_s:
        return False
    far = attempt.checkpoint_step >= memory.best_step + policy.credit_steps
    return far and begun_s - attempt.launched_at_s >= policy.credit_s


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
