"""What the user wants, as the brain takes it in: newer goals open a chapter, older ones are void."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Tuple

from .actions import Next
from .facts import Goal, Observation
from .memory import Memory, StopDecision
from .verdicts import Verdict


def in_force(goal: Goal, memory: Memory) -> Goal:
    """The goal to follow. One that is older than what was accepted (a restored file) undoes nothing."""
    if goal.generation >= memory.goal_generation:
        return goal
    return Goal(memory.goal_want, memory.goal_generation)


def accept(memory: Memory, goal: Goal, kind: str) -> Memory:
    """A newer "run" that names the newest attempt asks for another one, also after one that was given up or stopped.

    A "run" that names none, or one that is history, ends a hold and asks for nothing.
    """
    newer = goal.generation > memory.goal_generation
    if not newer and goal.want == memory.goal_want:
        return memory
    memory = replace(memory, goal_generation=goal.generation, goal_want=goal.want)
    if not newer:
        return memory
    if goal.want == "stop":
        return replace(memory, again_after=None)
    if _asks_for_another(goal, memory.attempt.number, kind):
        return replace(memory, again_after=memory.attempt.number, given_up="", final=None)
    return memory


def ask_for_end(memory: Memory, goal: Goal, seen: Observation, kind: str) -> Memory:
    """The stop that the goal asks of a living attempt. It is not taken back: the trainer may have heard it already."""
    number = memory.attempt.number
    if memory.stop is not None:
        return memory
    if goal.want == "stop":
        return replace(memory, stop=_by_person(number, "the goal is stop", seen.at_s))
    if _asks_for_another(goal, number, kind):
        return replace(memory, stop=_by_person(number, "a restart was asked for", seen.at_s))
    return memory


def _asks_for_another(goal: Goal, number: int, kind: str) -> bool:
    """What somebody else started cannot be started again, so nobody's restart ends it."""
    return goal.want == "run" and goal.end_attempt == number and kind != "adopted"


def wishes(kind: str, verdict: str, final: bool) -> Tuple[str, ...]:
    """What a person can still ask of a run: "hold" (and its release), "restart", "stop"."""
    again = ("restart",) if kind != "adopted" and not (final and verdict == Verdict.COMPLETED.value) else ()
    return again if final else ("hold", *again, "stop")


def hold_left_s(goal: Goal, now_s: float) -> Optional[float]:
    """Seconds that the run is still on hold: infinite without an end, None when it is not."""
    if goal.want != "hold":
        return None
    left_s = float("inf") if goal.hold_until_s is None else goal.hold_until_s - now_s
    return left_s if left_s > 0 else None


def _by_person(number: int, because: str, now_s: float) -> StopDecision:
    return StopDecision(number, because, Verdict.STOPPED, "none", now_s, person=True)


def on_hold(left_s: float) -> Next:
    return Next("wait", None if left_s == float("inf") else left_s, "the run is on hold")
