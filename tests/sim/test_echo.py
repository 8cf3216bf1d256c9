"""What our own looking does to a process must not count as its life."""

from __future__ import annotations

from dflash_supervise.core.actions import SampleStacks
from dflash_supervise.core.verdicts import Verdict
from tests.sim.world import World


def blocked() -> World:
    world = World().run(60)
    trainer = world.now_attempt
    assert trainer is not None
    trainer.mode = "blocked"
    return world


def test_the_stack_dump_that_we_ask_for_does_not_explain_a_hang_away() -> None:
    world = blocked()
    trainer = world.now_attempt
    assert trainer is not None
    for _ in range(120):
        before = sum(isinstance(action, SampleStacks) for _, action in world.actions)
        samples = len(trainer.stacks)
        world.tick()
        if len(trainer.stacks) > samples and before >= 0:
            trainer.written += 12_000  # faulthandler's dump, written by the process itself
    hangs = [entry for entry in world.verdicts if entry[1] is Verdict.HANG]
    assert hangs and len(world.trainers) == 2
    said = [entry[1] for entry in world.verdicts]
    first = said.index(Verdict.HANG)
    assert Verdict.RUNNING not in said[first : said.index(Verdict.STARTING, first)]


def test_a_stop_that_was_decided_keeps_its_verdict_until_the_set_is_empty() -> None:
    world = blocked()
    trainer = world.now_attempt
    assert trainer is not None
    trainer.dies_on_term_s = 8.0
    while trainer.asked_at_s is None:
        world.tick()
    trainer.mode = "training"  # SIGTERM woke it: it saves
    while trainer.alive:
        world.tick()
        assert world.verdict is Verdict.HANG
