"""Ends that do not add up, leftovers, launches that come to nothing, disks, another boot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_supervise.core.actions import EndStale, Launch, Stop
from dflash_supervise.core.facts import Goal
from dflash_supervise.core.policy import Policy
from dflash_supervise.core.verdicts import Verdict
from tests.sim.world import GIB, World, gpus, trained

# ---- leftovers


@pytest.mark.parametrize("finished", [True, False])
def test_a_leftover_that_survives_sigkill_is_told_to_a_person(finished: bool) -> None:
    world = trained()
    world.trainer.leftovers, world.trainer.immortal = 1, True
    world.die(0, done=True) if finished else world.die(70, exc="RuntimeError", message="boom")
    world.run(120)
    assert len(world.trainers) == 1
    if finished:
        assert world.verdict is Verdict.COMPLETED and world.last.assessment.final and not world.pages()
    else:
        assert (world.verdict, world.last.assessment.cause) == (Verdict.STALE_PROCESS, "unkillable")
        assert "unkillable" in world.pages() and not world.last.assessment.final
        world.trainer.immortal = False
        world.run(40)
        assert len(world.trainers) == 2 and not world.pages()


def test_a_trainer_that_survives_sigkill_is_told_to_a_person() -> None:
    world = trained()
    world.trainer.mode, world.trainer.immortal = "blocked", True
    world.run(200)
    assert "unkillable" in world.pages() and world.last.assessment.next.what == "wait"


def test_a_leftover_of_an_earlier_run_that_does_not_die_is_told_to_a_person_and_tried_again() -> None:
    world = World(stale_ours=1, stale_immortal=True).run(30)
    assert not world.pages() and world.kinds() == ["EndStale"]
    world.run(60)
    assert world.pages() == ["leftover"] and isinstance(world.actions[-1][1], EndStale)
    world.stale_ours = 0
    world.run(30)
    assert world.verdict is Verdict.RUNNING and not world.pages()


def test_an_observed_run_ends_no_leftovers_and_starts_over_none() -> None:
    world = World(stale_ours=1, policy=Policy(preset="observe")).run(60)
    assert not world.actions and world.verdict is Verdict.STALE_PROCESS
    other = trained(policy=Policy(preset="observe"))
    other.trainer.leftovers = 1
    other.goal = Goal("run", 2)
    other.die(signal=11)
    other.goal = Goal("run", 3, end_attempt=1)
    other.run(60)
    assert not other.signals() and len(other.trainers) == 1


def test_work_that_a_launcher_left_running_is_the_attempt_until_its_set_is_empty() -> None:
    world = trained(kind="foreign", policy=Policy(preset="auto"))
    world.trainer.leftovers = 3
    world.die(0)
    for _ in range(300):
        world.trainer.step += 1
        world.hidden = {"processes"} if world.now_s % 50 == 0 else set()
        world.tick()
    assert not world.signals() and world.verdict is Verdict.RUNNING
    world.trainer.leftovers = 0
    world.run(2)
    assert world.verdict is Verdict.ENDED_UNCLEAR, "10 000 steps were wanted"


# ---- ends


def test_a_marker_is_stronger_than_the_noise_of_taking_down() -> None:
    world = trained()
    world.die(signal=11, done=True)
    world.run(30)
    assert world.verdict is Verdict.COMPLETED and len(world.trainers) == 1


@pytest.mark.parametrize("hidden", ["log", "progress"])
def test_an_exit_0_whose_log_or_progress_is_not_seen_at_the_end_is_not_taken_for_success(hidden: str) -> None:
    world = trained(kind="foreign")
    if hidden == "log":
        world.trainer.steps_total = world.trainer.step
    world.die(0)
    world.hidden = {hidden}
    world.run(30)
    assert world.verdict is Verdict.ENDED_UNCLEAR and len(world.trainers) == 1


def test_an_end_in_the_second_in_which_a_hang_would_be_confirmed_is_that_end() -> None:
    world = trained()
    world.trainer.mode = "blocked"
    while not world.trainer.stacks or world.last.assessment.next.in_s != 1.0:
        world.tick()
    world.die(70, exc="RuntimeError", message="watchdog")
    world.run(1)
    assert world.last.assessment.cause == "rank_exception" and not world.signals()
    assert sorted((one.cause, one.state) for one in world.memory.incidents) == [
        ("lock_deadlock", "resolved"),
        ("rank_exception", "open"),
    ]


def test_a_suspicion_is_over_when_the_run_completes() -> None:
    world = trained(policy=Policy(preset="careful"))
    world.trainer.mode = "blocked"
    world.run(200)
    world.die(0, done=True)
    world.run(2)
    assert world.last.assessment.final and {one.state for one in world.memory.incidents} == {"resolved"}


def test_a_confirmed_hang_is_told_with_the_cause_that_it_was_ended_for() -> None:
    world = trained()
    world.hidden = {"stacks"}
    world.trainer.mode = "blocked"
    world.run(100)
    assert world.pages() == ["none"]
    world.hidden = set()
    world.run(3)
    incident = world.memory.incidents[0]
    assert (incident.cause, incident.response) == ("lock_deadlock", "restart")
    assert any(item.what == "stack" for item in incident.evidence)


# ---- launches


def test_a_launch_that_never_shows_is_told_to_a_person_and_asked_for_again() -> None:
    world = World(launches_fail=True).run(50)
    assert not world.pages()
    world.run(30)
    assert world.pages() == ["launch_interrupted"] and isinstance(world.actions[-1][1], Launch)
    world.goal = Goal("hold", 2)
    world.run(600)
    world.launches_fail = False
    world.goal = Goal("run", 3)
    world.run(30)
    assert world.verdict is Verdict.RUNNING and not world.pages()


def test_a_launch_whose_keeper_died_is_tried_again_within_its_budget() -> None:
    world = World(keepers_die=True).run(300)
    assert 1 < len(world.trainers) <= 4 and world.last.assessment.final
    assert world.last.assessment.cause == "launch_interrupted" and world.pages()


@pytest.mark.parametrize("silent", [True, False])
def test_gpus_that_nobody_can_prove_free_for_an_hour_are_told_to_a_person_once(silent: bool) -> None:
    world = World(proof_silent=silent, proof_free=None).run(290)
    assert not world.memory.incidents and world.last.assessment.next.what == "wait"
    world.run(3310, every_s=4)
    assert not world.trainers and [one.verdict for one in world.memory.incidents] == [Verdict.STALE_PROCESS]
    assert world.pages() == ["none"] and not world.last.assessment.final
    world.proof_silent, world.proof_free = False, True
    world.run(30)
    assert world.verdict is Verdict.RUNNING and not world.pages()


def test_a_person_who_starts_again_hears_that_the_gpus_are_taken() -> None:
    world = trained()
    world.goal = Goal("stop", 2)
    world.run(10)
    world.foreign = True
    world.goal = Goal("run", 3, end_attempt=1)
    world.run(60)
    assert world.verdict is Verdict.STALE_PROCESS and world.pages() == ["foreign_process"]


def test_a_look_at_busy_gpus_after_a_final_end_closes_with_them() -> None:
    world = trained()
    world.foreign = True
    world.die(70, exc="KeyError", message="'x'")
    world.run(3)
    assert not world.last.assessment.final and "foreign_process" in world.pages()
    world.run(10)
    assert world.last.assessment.final
    world.foreign = False
    world.run(2)
    assert world.pages() == ["bug_in_code"]


# ---- disk


@pytest.mark.parametrize("free", [0, None])
def test_a_full_disk_is_waited_for_and_told_and_trained_on_when_there_is_room(free: int | None) -> None:
    world = trained()
    world.disk_free_bytes = free
    world.die(74, exc="OSError", message="[Errno 28] No space left on device")
    world.run(400)
    assert len(world.trainers) == 1 and world.last.assessment.next.why == "free space is needed first"
    assert world.pages() == ["disk_full"]
    assert "free space" in world.memory.incidents[-1].response_text
    world.disk_free_bytes = 50 * GIB
    world.run(20)
    assert len(world.trainers) == 2 and not world.pages()


# ---- another boot, another directory


@pytest.mark.parametrize("now_s", [40.0, 5_000_000.0])
def test_a_restart_that_was_due_comes_also_when_the_clock_began_anew(now_s: float) -> None:
    world = trained(now_s=1_000_000.0)
    world.die(signal=11)
    world.run(3)
    world.restart_agent()
    world.boot_id, world.now_s = "boot-2", now_s
    world.run(10)
    assert len(world.trainers) == 2
    world.run(60)
    assert world.verdict is Verdict.RUNNING and len(world.memory.restarts) == 1
    assert world.memory.restarts[0].at_s < world.now_s


def test_restarts_of_another_boot_still_count() -> None:
    world = World(now_s=1_000_000.0, policy=replace(Policy(), backoff_s=1.0))
    for _ in range(3):
        world.run(60)
        world.die(signal=11)
        world.run(2)
        world.restart_agent()
        world.boot_id, world.now_s = world.boot_id + "x", 40.0
    world.run(60)
    assert len(world.trainers) == 2 and world.last.assessment.final


def test_a_clock_that_runs_backwards_while_the_boot_id_is_not_told_is_a_new_clock() -> None:
    world = trained(now_s=1_000_000.0)
    world.hidden = {"host"}
    world.now_s = 40.0
    world.trainer.launched_at_s, world.trainer.began_at = 0.0, world.trainer.step
    world.run(60)
    assert world.verdict is Verdict.RUNNING and not world.signals()
    world.trainer.mode = "blocked"
    world.run(40)
    assert world.said(Verdict.HANG)


def test_a_run_directory_that_forgot_its_attempts_starts_nothing_and_is_told() -> None:
    world = trained()
    world.forgotten = True
    world.run(300)
    assert world.kinds() == ["Launch"] and world.pages() == ["history_lost"]
    assert world.last.assessment.next.what == "wait" and world.last.assessment.attempt == 1
    world.forgotten = False
    world.run(5)
    assert world.verdict is Verdict.RUNNING and not world.pages()
    assert not [one for _, one in world.actions if isinstance(one, Stop)]


def test_gpus_with_foreign_work_hold_a_restart_back_and_next_says_so_before_it_is_due() -> None:
    world = trained(gpus=gpus(2))
    world.die(signal=9, oom_kills=0)
    world.foreign = True
    world.run(100)
    assert world.last.assessment.next.what == "wait" and 490 <= (world.last.assessment.next.in_s or 0) <= 510


def test_gpus_that_are_not_free_and_do_not_answer_are_accused_of_nothing_more() -> None:
    world = World(proof_free=False)
    world.hidden = {"gpus"}
    world.run(20)
    assert not world.trainers and world.verdict is Verdict.STALE_PROCESS
    assert not any("power" in item.what for one in world.last.assessment.findings for item in one.evidence)
