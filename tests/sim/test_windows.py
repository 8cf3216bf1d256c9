"""Healthy runs judged by another life's limits, a debugger, a worker on its own, an inner restart loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_supervise.core.actions import SampleStacks, Stop
from dflash_supervise.core.facts import Traceback
from dflash_supervise.core.policy import Policy
from dflash_supervise.core.verdicts import Verdict
from tests.sim.world import World, gpus, trained

# ---- rule 15: limits of another life


def test_a_new_batch_size_in_the_second_attempt_is_not_judged_by_the_first_ones_steps() -> None:
    world = trained(gpus=gpus(2))
    world.die(signal=11)
    world.step_s = 100.0
    world.run(60)
    assert len(world.trainers) == 2
    for _ in range(6):
        world.trainer.mode = "blocked"
        world.run(99)
        world.trainer.mode = "training"
        world.run(1)
    assert not [one for _, one in world.actions if isinstance(one, Stop)]


def test_a_resumed_step_number_is_not_a_step() -> None:
    world = trained()
    world.die(signal=11)
    world.run(8)
    trainer = world.trainer
    trainer.start_s, trainer.step = 1e9, 0
    trainer.phase = "compiling"
    world.run(30)
    trainer.step = trainer.began_at
    trainer.phase = "training"
    world.run(200)
    assert [one.state for one in world.memory.incidents] == ["open"], "nothing is cured before a step is made"
    assert world.verdict is Verdict.STARTING and not world.signals()


def test_a_step_that_was_learned_slow_may_be_slow_again() -> None:
    world = World(step_s=40.0).run(400)
    world.trainer.mode = "blocked"
    world.run(160)
    assert not world.said(Verdict.HANG)
    world.run(250)
    assert world.said(Verdict.HANG) and not world.signals()


def test_a_debugger_that_leaves_opens_a_new_window() -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode, world.trainer.tracer_pid = "spinning", 4242
    world.run(900)
    world.trainer.tracer_pid = 0
    world.run(80)
    assert not world.signals()
    assert not [one for _, one in world.actions if isinstance(one, SampleStacks) and world.now_s < 961]


def test_a_worker_that_looks_dead_under_a_debugger_is_not_acted_upon() -> None:
    world = two_workers()
    world.trainer.dead, world.trainer.tracer_pid = {"drafter-1"}, 4242
    world.run(300)
    assert not world.signals()


@pytest.mark.parametrize("tracer", [None, 0])
def test_not_to_know_whether_a_debugger_is_attached_forbids_the_kill(tracer: int | None) -> None:
    world = two_workers()
    world.trainer.dead, world.trainer.tracer_pid = {"drafter-1"}, tracer
    world.run(100)
    assert bool(world.signals()) is (tracer == 0)


# ---- rule 16 and workers


def two_workers(**more: object) -> World:
    world = World(**more).run(3)  # type: ignore[arg-type]
    world.trainer.worker_steps = {"drafter-0": 0, "drafter-1": 0}
    return world.run(60)


def test_a_worker_that_evaluates_alone_while_the_others_train_is_not_a_culprit() -> None:
    world = two_workers()
    world.trainer.slow = {"drafter-1"}
    world.run(400)
    assert not world.signals() and world.said(Verdict.PARTIAL_STALL)
    world.trainer.slow = set()
    world.run(10)
    assert world.verdict is Verdict.RUNNING and not world.pages()


def test_the_death_of_a_helper_thread_makes_no_worker_a_culprit() -> None:
    world = two_workers()
    found = Traceback("OSError", "x", "OSError: x", 40, "log.py:1", thread="metrics")
    world.trainer.log = replace(world.trainer.log, tracebacks=(found,), traceback_is_last=False)
    world.run(5)
    assert [note.slug for note in world.last.assessment.notes] == ["thread_died"]
    world.trainer.slow = {"drafter-1"}
    world.run(29)
    assert not world.said(Verdict.PARTIAL_STALL)
    world.run(300)
    assert not world.signals()


def test_a_worker_that_lives_again_after_its_traceback_is_judged_like_any_other() -> None:
    world = two_workers()
    found = Traceback("OSError", "x", "OSError: x", 40, "w.py:1", thread="drafter-1")
    world.trainer.log = replace(world.trainer.log, tracebacks=(found,), traceback_is_last=False)
    world.trainer.slow = {"drafter-1"}
    world.run(25)
    assert not world.said(Verdict.PARTIAL_STALL)
    world.run(300)
    assert not world.signals()


def test_a_worker_that_has_done_its_share_may_be_gone() -> None:
    world = two_workers()
    world.trainer.slow = {"drafter-1"}
    world.trainer.worker_steps["drafter-1"] = world.trainer.steps_total
    world.trainer.dead = {"drafter-1"}
    world.run(300)
    assert not world.said(Verdict.PARTIAL_STALL)


def test_an_inner_restart_loop_is_left_to_its_launcher() -> None:
    world = two_workers(kind="foreign")
    trainer = world.trainer
    trainer.step, trainer.began_at, trainer.launched_at_s = 3, 0, world.now_s - 8
    trainer.worker_steps = {"drafter-0": 3, "drafter-1": 3}
    world.run(20)
    assert [note.slug for note in world.last.assessment.notes] == ["elastic_restart"]
    trainer.dead = {"drafter-1"}
    world.run(300)
    assert not world.signals()
    world.die(1, exc="RuntimeError", message="boom")
    world.tick()
    assert world.verdict is Verdict.CRASH


def test_a_new_agent_does_not_call_an_open_hang_resolved() -> None:
    world = trained(policy=Policy(preset="careful"))
    world.trainer.mode = "blocked"
    world.run(200)
    world.restart_agent()
    for _ in range(200):
        world.tick()
        assert [one.state for one in world.memory.incidents] == ["open"]
    world.trainer.mode = "training"
    world.run(2)
    assert [one.state for one in world.memory.incidents] == ["resolved"]
    world.trainer.mode = "blocked"
    world.run(200)
    assert [(one.state, one.response) for one in world.memory.incidents] == [("open", "alert_human")]
