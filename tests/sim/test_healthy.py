"""Healthy runs that look ill: each story is a way in which the brain could end a run that was fine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_supervise.core.facts import GpuHolder
from dflash_supervise.core.verdicts import Verdict
from tests.sim.world import gpus, trained

# ---- rule 1: quiet but healthy


@pytest.mark.parametrize("rate", [1, 500, 100_000])
def test_a_blocked_run_whose_sockets_move_is_not_killed_however_little_comes(rate: int) -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode, world.socket_rate = "blocked", rate
    world.run(1200, every_s=4)
    assert not world.signals()


def test_a_keep_alive_each_minute_is_enough_to_call_a_person_instead() -> None:
    world = trained()
    world.trainer.mode = "blocked"
    for _ in range(15):
        assert world.socket_bytes is not None
        world.socket_bytes += 40
        world.run(60)
    assert not world.signals() and "none" in world.pages()


def test_a_connection_that_closes_has_moved_too() -> None:
    world = trained(socket_bytes=9000)
    world.trainer.mode = "blocked"
    world.run(85)
    world.socket_bytes = 0
    world.run(60)
    assert not world.signals()


def test_sockets_that_cannot_be_read_for_one_look_may_have_moved_in_it() -> None:
    world = trained()
    world.trainer.mode = "blocked"
    world.run(85)
    world.socket_bytes = None
    world.run(1)
    world.socket_bytes = 0
    world.run(60)
    assert not world.signals()


@pytest.mark.parametrize("mode", ["blocked", "spinning"])
def test_a_thread_that_waits_for_an_answer_from_outside_is_a_persons_matter(mode: str) -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode = mode
    world.trainer.stack = "thread MainThread: _read_status (client.py:287)"
    world.run(900)
    assert not world.signals() and world.pages()


@pytest.mark.parametrize("phase", ["finishing", "done"])
def test_a_run_that_is_finishing_is_never_ended_and_a_person_hears_of_it_at_last(phase: str) -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode, world.trainer.phase = "spinning", phase
    world.run(1750, every_s=4)
    assert not world.said(Verdict.HANG)
    world.hidden = {"progress"} if phase == "done" else set()
    world.run(1200, every_s=4)
    assert not world.signals() and world.said(Verdict.HANG)


def test_the_last_step_is_never_acted_upon_also_when_progress_cannot_be_read_any_more() -> None:
    world = trained(gpus=gpus(2))
    world.trainer.steps_total = world.trainer.step
    world.run(2)
    world.trainer.mode = "spinning"
    world.trainer.worker_steps = {"drafter-0": world.trainer.step, "drafter-1": 3}
    world.trainer.dead = {"drafter-0", "drafter-1"}
    world.run(600)
    world.hidden = {"progress"}
    world.run(600)
    assert not world.signals()


def test_an_evaluation_on_one_rank_uses_the_cpu_beside_the_ranks_that_spin() -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode, world.trainer.stack_moves = "spinning", True
    for _ in range(900):
        world.trainer.cpu_s += 3.0  # two ranks wait for the GPU, the third computes
        world.tick()
    assert not world.signals()


def test_stacks_that_move_acquit_spinning_gpus() -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode, world.trainer.stack_moves = "spinning", True
    world.run(600)
    assert not world.signals() and world.pages()


def test_spinning_gpus_without_stacks_are_a_culprit_but_not_while_more_cpu_is_used_than_waiting_takes() -> None:
    for cores, killed in ((2.0, True), (4.0, False)):
        world = trained(gpus=gpus(2))
        world.hidden = {"stacks"}
        world.trainer.mode = "spinning"
        for _ in range(95):
            world.trainer.cpu_s += cores
            world.tick()
        assert bool(world.signals()) is killed, cores


def test_a_gpu_that_stands_idle_while_the_others_spin_is_pointed_at() -> None:
    world = trained(gpus=gpus(3))
    world.hidden = {"stacks"}
    world.trainer.mode, world.trainer.absent = "spinning", "GPU-1"
    world.run(95)
    assert world.said_cause("nccl_spin", Verdict.HANG) and world.signals()
    assert "GPU 1 stands idle while GPU 0, 2 spins at idle power" in world.memory.incidents[0].sentence


def test_a_gpu_of_somebody_else_that_spins_accuses_nobody_and_one_that_works_explains_nothing() -> None:
    world = trained(gpus=gpus(2), kind="bundled")
    theirs = GpuHolder(7, 2**30, ours=False)
    for util, power in ((100.0, 125.0), (99.0, 650.0)):
        world.gpus = [
            replace(world.gpus[0], holders=(GpuHolder(101, 2**30, ours=True),)),
            replace(world.gpus[1], util_pct=util, power_w=power, holders=(theirs,), error="not ours"),
        ]
        world.gpus[1] = replace(world.gpus[1], error=None)
        world.trainer.mode, world.trainer.stack_moves = "blocked", True
        world.run(300)
    assert not world.signals() and world.said(Verdict.HANG)


# ---- rule 2: checkpoints and file systems


@pytest.mark.parametrize(("state", "wchan"), [("D", "ext4_sync_file"), ("S", "request_wait_answer"), ("D", None)])
def test_an_fsync_of_twenty_minutes_is_left_alone(state: str, wchan: str | None) -> None:
    world = trained(gpus=gpus(2))
    trainer = world.trainer
    trainer.mode, trainer.state, trainer.wchan = "blocked", state, wchan
    world.run(1200, every_s=4)
    assert not world.signals() and not world.said(Verdict.HANG)


def test_a_flush_that_is_caught_waiting_only_now_and_then_is_still_a_flush() -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode = "spinning"
    for second in range(900):
        world.trainer.state = "D" if second % 10 == 0 else "S"
        world.tick()
    assert not world.signals() and not world.said(Verdict.HANG)


def test_a_file_system_that_never_comes_back_calls_a_person_and_kills_nobody() -> None:
    world = trained()
    world.trainer.mode, world.trainer.state = "blocked", "D"
    world.run(4000, every_s=4)
    assert not world.signals() and world.pages()


@pytest.mark.parametrize("then", ["blocked", "spinning"])
def test_the_first_step_after_a_long_save_has_its_full_time(then: str) -> None:
    world = trained(gpus=gpus(2))
    trainer = world.trainer
    trainer.mode, trainer.phase, trainer.state = "spinning", "saving", "D"
    world.run(1500, every_s=4)
    trainer.mode, trainer.phase, trainer.state = then, "training", "S"
    world.run(25)
    trainer.mode = "training"
    world.run(60)
    assert not world.signals() and not world.said(Verdict.HANG)


def test_after_a_save_of_an_hour_the_next_one_may_take_three() -> None:
    world = trained(gpus=gpus(2))
    trainer = world.trainer
    trainer.mode, trainer.phase = "saving", "saving"
    world.run(3600, every_s=4)
    trainer.mode, trainer.phase = "training", None
    world.run(60)
    trainer.mode, trainer.phase = "spinning", "saving"
    world.run(10_700, every_s=4)
    assert not world.signals() and not world.said(Verdict.HANG)


def test_written_bytes_count_although_they_are_told_only_every_other_second() -> None:
    world = trained()
    world.trainer.mode = "blocked"
    for second in range(300):
        world.trainer.written += 10**6
        world.io_told = second % 2 == 0
        world.tick()
    assert not world.signals() and not world.said(Verdict.HANG)
