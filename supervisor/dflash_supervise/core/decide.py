"""One pass of the brain: look at what is, say what it means, want what follows. Pure.

``decide`` is level-triggered: each tick judges the present, so a start, a crash of the agent and a doubled message are
all just the next look. The hands refuse an action whose fence (the attempt) or precondition no longer holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Tuple

from . import budget, ending, goals, incidents
from .actions import Action, Next
from .assessment import Assessment
from .at_rest import at_rest
from .facts import Goal, HostReading, Missing, Observation
from .folding import fold
from .living import living
from .memory import EndedAttempt, Incident, Memory, Restart, on_this_boot
from .notes import notes
from .policy import Policy
from .verdicts import Verdict
from .view import View, alive_count, work_classes


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
    seen, policy, kind = snapshot.observation, snapshot.policy, snapshot.kind
    boot_id = seen.host.boot_id if isinstance(seen.host, HostReading) else None
    before = on_this_boot(snapshot.memory, boot_id, seen.at_s)
    goal = goals.in_force(snapshot.goal, before)
    if seen.attempt.number < before.attempt.number:
        return _history_lost(before, seen)
    memory = goals.accept(_count_restart(fold(before, seen), before), goal, kind)
    if memory.stop is not None and memory.stop.attempt != memory.attempt.number:
        memory = replace(memory, stop=None)  # of an attempt whose end this memory has missed
    memory = _history_found(memory, seen.at_s)
    lives = _lives(memory, seen, kind)
    if lives:
        memory = goals.ask_for_end(memory, goal, seen, kind)
    if goals.hold_left_s(goal, seen.at_s) is not None:
        memory = replace(memory, watching_since_s=seen.at_s)  # the end of a hold opens a new window
    view = View(seen.at_s, seen, memory, work_classes(seen))
    memory, assessment, actions = (living if lives else at_rest)(view, goal, policy, kind)
    if memory.launch is not None and lives:
        memory = replace(memory, launch=None)
    memory = ending.close_cured(memory, view)
    return _decision(before, memory, replace(assessment, notes=notes(view, policy)), actions)


def _decision(before: Memory, memory: Memory, assessment: Assessment, actions: Tuple[Action, ...]) -> Decision:
    known = {incident.id: incident for incident in before.incidents}
    changed = tuple(incident for incident in memory.incidents if known.get(incident.id) != incident)
    numbers = {ended.number for ended in before.ended}
    return Decision(
        memory, assessment, actions, changed, tuple(one for one in memory.ended if one.number not in numbers)
    )


def _lives(memory: Memory, seen: Observation, kind: str) -> bool:
    """Is there an attempt that is not over."""
    number = memory.attempt.number
    if number == 0 or any(ended.number == number for ended in memory.ended):
        return False
    return seen.exit is None or _detached(seen, kind)


def _detached(seen: Observation, kind: str) -> bool:
    """A launcher that ended well and left its work running: the attempt ends when its set is empty.

    A set that cannot be read is not known to be empty.
    """
    if kind != "foreign" or seen.exit is None or seen.exit.code != 0:
        return False
    return isinstance(seen.processes, Missing) or alive_count(seen) > 0


def _count_restart(memory: Memory, before: Memory) -> Memory:
    """A new attempt that nobody asked for by hand costs one restart of its predecessor's cause."""
    number = memory.attempt.number
    last = next((ended for ended in memory.ended if ended.number == number - 1), None)
    if number == before.attempt.number or last is None or memory.again_after == last.number:
        return memory
    launched = Restart(memory.last_at_s, last.cause, number)
    return replace(memory, restarts=budget.remember(memory, launched))


# ---- a run directory that forgot


def _history_lost(memory: Memory, seen: Observation) -> Decision:
    """Fewer attempts on disk than were seen: nothing is judged or launched on that ground."""
    number = memory.attempt.number
    text = f"attempt {number} was seen before, and the run directory knows of {seen.attempt.number} only"
    told = ending.call_person(
        replace(memory, last_at_s=seen.at_s, watching_since_s=seen.at_s),
        number,
        Verdict.ENDED_UNCLEAR,
        "history_lost",
        text,
        "nothing is launched before a person has looked",
        seen.at_s,
    )
    upcoming = Next("wait", None, "nothing is launched before the run directory is whole again")
    return _decision(memory, told, Assessment(number, Verdict.ENDED_UNCLEAR, "history_lost", text, next=upcoming), ())


def _history_found(memory: Memory, now_s: float) -> Memory:
    lost = [one for one in incidents.unresolved(memory.incidents) if one.cause == "history_lost"]
    return replace(memory, incidents=incidents.resolve(memory.incidents, lost, now_s)) if lost else memory
