"""What only the supervisor can see: a host that does not answer, a silent agent on a host that does. Pure.

Nothing here ends or restarts a run: silence is *unknown since*, and the strongest cure is starting an agent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class Limits:
    """Seconds. ``ensure_every_s`` is the pause between two tries to start a silent agent."""

    unreachable_hold_s: float = 120.0
    agent_silent_s: float = 35.0
    silent_hold_s: float = 300.0
    ensure_every_s: float = 20.0


@dataclass(frozen=True)
class RunView:
    """One run that is not over, as the supervisor sees it."""

    run_id: str
    news_age_s: Optional[float]  # None: the host has not said anything about it yet
    silent_for_s: Optional[float] = None  # marked silent that long ago
    silent_told: bool = False
    ensured_ago_s: Optional[float] = None  # last try to start its agent
    awaited_s: float = math.inf  # since its goal was given: a new or reopened run has no agent to hear from before


@dataclass(frozen=True)
class HostView:
    """One host with its link, and for how long the link has been in its present state."""

    key: str
    status: str  # connecting, ready, unreachable
    since_s: float  # in this state for so long
    told: bool = False  # a page about it is open
    runs: Tuple[RunView, ...] = ()


@dataclass(frozen=True)
class FleetAction:
    """One thing to do."""

    what: str  # tell_unreachable, tell_reachable, ensure_agent, mark_silent, clear_silent, tell_silent
    host: str
    run_id: str = ""


def judge(host: HostView, limits: Limits) -> Tuple[FleetAction, ...]:
    """What this host's silence, or the end of it, asks for. A host that is down hides its runs' symptoms."""
    if host.status != "ready":
        down = host.status == "unreachable" and host.since_s >= limits.unreachable_hold_s
        return (FleetAction("tell_unreachable", host.key),) if down and not host.told and host.runs else ()
    found = [FleetAction("tell_reachable", host.key)] if host.told else []
    for run in host.runs:
        found.extend(_agent(host, run, limits))
    return tuple(found)


def _agent(host: HostView, run: RunView, limits: Limits) -> Tuple[FleetAction, ...]:
    # The link may just have come back; only news that is younger than the mark clears it.
    if run.silent_for_s is not None and run.news_age_s is not None and run.news_age_s < run.silent_for_s:
        return (FleetAction("clear_silent", host.key, run.run_id),)
    # Records held back by a cut link arrive after it is ready, those of a new agent after its goal was given.
    awaited_s = min(host.since_s, run.awaited_s)
    quiet_s = awaited_s if run.news_age_s is None else min(run.news_age_s, awaited_s)
    if quiet_s < limits.agent_silent_s:
        return ()
    found = []
    if run.silent_for_s is None:
        found.append(FleetAction("mark_silent", host.key, run.run_id))
    elif run.silent_for_s >= limits.silent_hold_s and not run.silent_told:
        found.append(FleetAction("tell_silent", host.key, run.run_id))
    if run.ensured_ago_s is None or run.ensured_ago_s >= limits.ensure_every_s:
        found.append(FleetAction("ensure_agent", host.key, run.run_id))
    return tuple(found)
