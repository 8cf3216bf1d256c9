"""Processes of an attempt that outlive it: they are ended before anything else, unless they are not ours to end."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

from . import ending
from .actions import Action, Next, Stop
from .assessment import Assessment
from .facts import Goal
from .follow_up import Plan, assess_end, newest_end
from .memory import Memory
from .policy import Policy
from .respond import KILLED
from .verdicts import Verdict
from .view import View, alive_count, limits

GOOD_ENDS = (Verdict.COMPLETED, Verdict.STOPPED)


def end_leftover(view: View, plan: Plan, policy: Policy) -> Tuple[Memory, Assessment, Tuple[Action, ...]]:
    """Stop what is left of an attempt that is over, and say when it will not die."""
    text = f"the attempt is over and {alive_count(view.seen)} of its processes live"
    stop = Stop(view.attempt.number, text, policy.grace_s)
    if _survivors(view) and plan.final in GOOD_ENDS:
        memory = replace(view.memory, final=plan.final)
        return memory, assess_end(replace(view, memory=memory), (), plan.next, True), (stop,)
    memory, stuck = unkillable(view, view.memory)
    if not stuck:
        return memory, assess_end(view, (), Next("stop", 0.0, text), False), (stop,)
    number = view.attempt.number
    upcoming = Next("wait", None, "not restartable until it is gone; tested again each second")
    return memory, Assessment(number, Verdict.STALE_PROCESS, "unkillable", stuck, next=upcoming), (stop,)


def unkillable(view: View, memory: Memory) -> Tuple[Memory, str]:
    """Page when SIGKILL did not help; the sentence says who survives, empty when nobody does."""
    names = _survivors(view)
    if not names:
        return memory, ""
    text = f"{names} survives SIGKILL"
    number = view.attempt.number
    answer = "not restartable: only the kernel or a reboot ends it"
    return ending.call_person(memory, number, Verdict.STALE_PROCESS, "unkillable", text, answer, view.now_s), text


def spared(view: View, goal: Goal, policy: Policy, kind: str) -> str:
    """Why what is left may live on: somebody ended a launcher, and its work may be healthy."""
    last = newest_end(view.memory)
    if kind != "foreign" or last is None or last.cause not in KILLED or goal.want == "stop":
        return ""
    if (view.attempt.step or 0) > (last.step or 0):
        _, confirm_s = limits(view.attempt, policy)
        if view.now_s - view.attempt.step_changed_at_s < confirm_s:
            return "somebody ended the launcher, and what is left of it trains on"
    waits = view.now_s - last.ended_at_s < policy.killed_wait_s
    return "somebody ended the launcher; what is left of it is not touched yet" if waits else ""


def _survivors(view: View) -> str:
    stop = view.seen.stop
    if stop is None or stop.attempt != view.attempt.number:
        return ""
    return ", ".join(f"process {p.pid} ({p.comm}, state {p.state})" for p in stop.unkillable)
