"""What ``why`` says about the future is what then happens, whatever happened before, as long as nothing changes."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dflash_supervise.core import causes
from dflash_supervise.core.actions import Action, Continue, EndStale, Launch, Next, Stop
from dflash_supervise.core.policy import Policy
from dflash_supervise.core.verdicts import Status, Verdict
from tests.sim.test_promises import SCRIPTS, told
from tests.sim.world import World, trained

pytestmark = pytest.mark.no_cover  # many thousand ticks, and the stories cover every branch

KINDS: dict[str, tuple[type[Action], ...]] = {
    "restart": (Launch,),
    "start": (Launch,),
    "stop": (Stop, EndStale),
    "continue": (Continue,),
}


def watch(world: World, seconds: int) -> list[tuple[float, Next]]:
    """Let time pass and nothing happen; what was said about the future in each second."""
    said = []
    for _ in range(seconds):
        upcoming = world.tick().assessment.next
        said.append((world.now_s, upcoming))
        assert isinstance(upcoming.why, str) and upcoming.what in {*KINDS, "nothing", "wait", "page"}
    return said


def broken(world: World, said: list[tuple[float, Next]], paged_at: dict[str, float]) -> list[str]:
    """The forecasts that did not come true within a second of their time."""
    wrong = []
    for at_s, upcoming in said:
        if upcoming.in_s is None or at_s + upcoming.in_s + 1 > world.now_s:
            continue
        until_s = at_s + upcoming.in_s + 1
        if upcoming.what in KINDS:
            hits = [one for one in world.actions if isinstance(one[1], KINDS[upcoming.what])]
            true = any(at_s <= when <= until_s for when, _ in hits)
        elif upcoming.what == "page":
            true = any(when <= until_s for when in paged_at.values())
        else:
            continue
        if not true:
            wrong.append(f"{at_s}: {upcoming}")
    return wrong


def forecast(world: World, seconds: int) -> list[str]:
    paged_at: dict[str, float] = {}
    said = []
    for _ in range(seconds):
        said += watch(world, 1)
        for one in world.memory.incidents:
            if (one.severity == "page" and one.response == causes.PAGE) or one.cause == "stopped_process":
                paged_at.setdefault(one.id, world.now_s)
    return broken(world, said, paged_at)


@settings(max_examples=20, deadline=None)
@given(SCRIPTS, st.sampled_from(["auto", "careful"]))
@example([("hang", 5)], "auto")
@example([("spin", 5)], "careful")
@example([("stop", 5)], "auto")
@example([("killed", 5)], "auto")
@example([("crash", 2), ("stale", 1)], "auto")
@example([("worker", 2)], "auto")
@example([("full", 5)], "auto")
@example([("sockets", 1), ("hang", 5)], "auto")
def test_what_is_said_to_come_comes_within_a_second_of_its_time(script: list[tuple[str, int]], preset: str) -> None:
    world = told(script, Policy(preset=preset))
    assert not forecast(world, 400)


@pytest.mark.parametrize("end", [{"signal": 11}, {"signal": 9, "oom_kills": 0}, {"code": 70, "exc": "RuntimeError"}])
def test_a_restart_in_so_many_seconds_is_a_launch_in_so_many_seconds(end: dict[str, object]) -> None:
    world = trained()
    world.die(**end)  # type: ignore[arg-type]
    world.tick()
    upcoming = world.last.assessment.next
    assert upcoming.what == "restart" and upcoming.in_s is not None and upcoming.in_s > 1
    due_s = world.now_s + upcoming.in_s
    world.run(upcoming.in_s + 2)
    assert due_s <= world.launched()[1] <= due_s + 1


def test_a_suspicion_says_when_it_ends_in_a_stop_and_it_does() -> None:
    world = trained()
    world.trainer.mode = "blocked"
    while world.last.assessment.next.what != "stop":
        world.tick()
    upcoming = world.last.assessment.next
    assert upcoming.in_s is not None
    due_s = world.now_s + upcoming.in_s
    world.run(upcoming.in_s + 2)
    first = next(when for when, action in world.actions if isinstance(action, Stop))
    assert due_s <= first <= due_s + 1


def test_a_suspicion_without_a_culprit_does_not_threaten_with_a_stop() -> None:
    world = trained(socket_bytes=None)
    world.trainer.mode = "blocked"
    said = watch(world, 300)
    assert {upcoming.what for _, upcoming in said} == {"nothing", "page", "wait"}
    assert "a person was called" in world.last.assessment.next.why


@settings(max_examples=20, deadline=None)
@given(SCRIPTS)
def test_the_verdict_agrees_with_its_findings_and_incidents(script: list[tuple[str, int]]) -> None:
    world = told(script, Policy())
    for _ in range(60):
        found = world.tick().assessment
        accused = {one.verdict for one in found.findings if one.status in (Status.FAILING, Status.PENDING)}
        if found.verdict in (Verdict.HANG, Verdict.PARTIAL_STALL) and world.trainer.alive:
            assert found.verdict in accused
        if found.verdict in (Verdict.RUNNING, Verdict.STARTING) and not world.hidden:
            assert not accused or found.attempt == 0
        if found.verdict is Verdict.COMPLETED and found.final:
            assert not [one for one in world.memory.incidents if one.state != "resolved"]
        assert found.sentence or found.verdict is Verdict.STOPPED
