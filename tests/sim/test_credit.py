"""What restarts cost, what earns them back, and what stays given up."""

from __future__ import annotations

from dataclasses import replace

from dflash_supervise.core.facts import Goal
from dflash_supervise.core.policy import Policy
from dflash_supervise.core.verdicts import Verdict
from tests.sim.world import World, trained


def test_what_was_given_up_stays_given_up_when_the_window_has_moved_on() -> None:
    world = World(policy=replace(Policy(), backoff_s=1.0))
    for message in "abcd":
        world.run(60)
        world.die(78, exc="RuntimeError", message=message)
        world.trainer.log = replace(world.trainer.log, causes=())
    world.run(20)
    count = len(world.trainers)
    assert world.last.assessment.final and world.last.assessment.verdict is Verdict.CRASH
    world.run(5000, every_s=4)
    assert len(world.trainers) == count
    world.goal = Goal("run", 2, end_attempt=world.trainer.number)
    world.run(60)
    assert len(world.trainers) == count + 1


def test_a_checkpoint_that_our_own_stop_caused_earns_nothing_and_an_earlier_one_keeps_its_worth() -> None:
    for steps_before, credited in ((0, False), (700, True)):
        world = World(checkpoint_every=10**9).run(10)
        world.trainer.checkpoint = steps_before
        world.run(700)
        world.trainer.mode, world.trainer.dies_on_term_s = "blocked", 10
        while not world.signals():
            world.tick()
        world.trainer.checkpoint = world.trainer.step
        world.run(15)
        assert [one.credited for one in world.memory.ended] == [credited]


def test_a_checkpoint_short_of_what_an_earlier_attempt_had_reached_earns_nothing() -> None:
    world = World(checkpoint_every=600).run(1200)
    world.die(signal=11)
    world.run(660)
    assert world.trainer.number == 2 and world.trainer.checkpoint == 1200
    world.die(signal=11)
    world.run(2)
    assert world.memory.ended[0].step is not None and world.memory.ended[0].step > 1150
    assert [one.credited for one in world.memory.ended] == [True, False]


def test_an_attempt_that_a_person_asked_for_costs_nothing() -> None:
    world = trained()
    world.die(70, exc="KeyError", message="'x'")
    world.run(20)
    world.goal = Goal("run", 2, end_attempt=1)
    world.run(60)
    assert len(world.trainers) == 2 and world.memory.restarts == ()
    world.die(signal=11)
    world.run(60)
    assert len(world.trainers) == 3 and [one.cause for one in world.memory.restarts] == ["segfault"]


def test_the_incident_that_an_attempt_was_ended_for_stays_open_until_the_next_one_steps() -> None:
    world = trained()
    world.trainer.mode = "blocked"
    while not world.memory.ended:
        world.tick()
    assert [(one.verdict, one.state) for one in world.memory.incidents] == [(Verdict.HANG, "open")]
    world.run(60)
    assert [(one.verdict, one.state) for one in world.memory.incidents] == [(Verdict.HANG, "resolved")]
