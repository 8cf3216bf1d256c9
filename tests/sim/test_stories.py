"""Stories on the virtual clock: what the brain says and does when a thing happens to a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_supervise.core.actions import Launch, Stop
from dflash_supervise.core.facts import Goal, Traceback
from dflash_supervise.core.policy import Policy
from dflash_supervise.core.verdicts import Verdict
from tests.sim.world import World, gpus, trained


@pytest.mark.no_cover
def test_a_run_starts_and_trains_without_a_word_against_it() -> None:
    world = trained(7200, gpus=gpus())
    assert [entry[1] for entry in world.verdicts] == [Verdict.STARTING, Verdict.RUNNING]
    assert world.kinds() == ["Launch"]


def test_a_runtime_error_after_the_first_step_is_restarted_from_the_checkpoint_and_resolved_by_its_first_step() -> None:
    world = trained()
    world.die(70, exc="RuntimeError", message="boom")
    world.tick()
    assert (world.verdict, world.decision.assessment.cause) == (Verdict.CRASH, "rank_exception")
    incident = world.decision.incidents[0]
    assert (incident.state, incident.response, incident.response_text) == ("open", "restart", "restarting (1 of 1)")
    assert incident.steps_lost == world.trainers[0].step - world.trainers[0].checkpoint
    world.run(30)
    assert world.verdict is Verdict.RUNNING
    assert [one.state for one in world.memory.incidents] == ["resolved"]
    assert world.most_alive == 1


def test_the_same_failure_twice_without_progress_is_called_deterministic_and_ends_the_run() -> None:
    world = trained()
    for _ in range(2):
        step = world.now_attempt.step
        world.now_attempt.step = 55
        world.die(70, exc="RuntimeError", message="boom")
        world.run(20)
        assert step >= 0
    assert world.decision.assessment.final and len(world.trainers) == 2
    assert "deterministic" in world.memory.incidents[-1].response_text


def test_a_key_error_is_never_restarted_and_says_that_something_must_change() -> None:
    world = trained()
    world.die(70, exc="KeyError", message="'bucket'")
    world.run(600)
    assert (world.verdict, world.decision.assessment.cause) == (Verdict.CRASH, "bug_in_code")
    assert world.decision.assessment.final and len(world.trainers) == 1
    assert world.memory.incidents[-1].response == "no_restart_fix_config"


def test_a_failure_before_the_first_step_is_not_repeated() -> None:
    world = World().run(3)
    world.die(1, exc="RuntimeError", message="bad model")
    world.run(60)
    assert world.verdict is Verdict.EARLY_CRASH and world.decision.assessment.final


def test_a_kill_by_somebody_is_held_and_paged_and_restarted_once_after_the_wait() -> None:
    world = trained()
    world.die(signal=9, oom_kills=0)
    world.run(590)
    assert world.decision.assessment.cause == "killed_externally" and len(world.trainers) == 1
    assert world.memory.incidents[-1].severity == "page"
    world.run(30)
    assert len(world.trainers) == 2
    world.die(signal=9, oom_kills=0)
    world.run(1500, every_s=4)
    assert len(world.trainers) == 2 and world.decision.assessment.final


def test_a_sigkill_while_the_kernels_counter_grew_is_an_oom_kill() -> None:
    world = trained()
    world.die(signal=9, oom_kills=1)
    world.tick()
    assert world.decision.assessment.cause == "host_oom_kill"


def test_a_hang_in_a_lock_is_suspected_then_confirmed_by_two_equal_stacks_and_restarted() -> None:
    world = trained(gpus=gpus(2))
    world.now_attempt.mode = "blocked"
    at = world.now_s
    world.run(130)
    hang = [entry for entry in world.verdicts if entry[1] is Verdict.HANG]
    assert hang[0][3] and hang[0][0] - at <= 33
    stop_at = next(when for when, action in world.actions if isinstance(action, Stop))
    assert 85 <= stop_at - at <= 95
    assert len(world.trainers) == 2 and world.verdict is Verdict.RUNNING
    incident = next(one for one in world.memory.incidents if one.verdict is Verdict.HANG)
    assert (incident.cause, incident.state, incident.response_text) == (
        "lock_deadlock",
        "resolved",
        "restarting (1 of 3)",
    )


def test_gpus_that_spin_at_idle_power_against_a_flat_step_are_a_hang_although_they_read_100_pct() -> None:
    world = trained(gpus=gpus(8))
    world.now_attempt.mode = "spinning"
    world.run(130)
    incident = next(one for one in world.memory.incidents if one.verdict is Verdict.HANG)
    assert incident.cause == "nccl_spin" and len(world.trainers) == 2


@pytest.mark.parametrize("mode", ["saving", "compiling"])
def test_a_long_checkpoint_or_compile_is_left_alone(mode: str) -> None:
    world = trained(gpus=gpus(2))
    world.now_attempt.mode = mode
    world.run(1500, every_s=4)
    world.now_attempt.mode = "training"
    world.run(60)
    assert not world.signals() and not world.said(Verdict.HANG)


def test_a_hang_without_a_culprit_calls_a_person_and_kills_nobody() -> None:
    world = trained()
    world.socket_bytes = None
    world.now_attempt.mode = "blocked"
    world.run(600)
    assert not world.signals()
    incident = world.memory.incidents[-1]
    assert (incident.state, incident.severity, incident.response) == ("open", "page", "alert_human")


@pytest.mark.parametrize("hidden", ["processes", "progress", "log", "gpus"])
def test_ignorance_never_turns_into_a_signal(hidden: str) -> None:
    world = trained(gpus=gpus(2))
    world.now_attempt.mode = "blocked"
    world.hidden = {hidden}
    world.run(900)
    assert not world.signals()


def test_a_stopped_process_gets_one_sigcont_and_then_a_page() -> None:
    world = trained()
    world.now_attempt.mode = "stopped"
    world.run(300)
    assert world.kinds() == ["Launch", "Continue"]
    assert len(world.signals()) == 1
    assert world.memory.incidents[-1].cause == "stopped_process" and world.memory.incidents[-1].severity == "page"


def test_a_dead_worker_in_a_living_process_is_restarted_with_process_workers_when_it_was_the_race() -> None:
    world = World(policy=replace(Policy(), remedies=("process_workers",))).run(3)
    world.now_attempt.worker_steps = {"drafter-0": 0, "drafter-1": 0}
    world.run(60)
    world.now_attempt.dead = {"drafter-1"}
    line = "Detected that you are using FX to symbolically trace a dynamo-optimized function. This is not supported"
    found = Traceback("RuntimeError", line, "RuntimeError: " + line, 40, "x.py:1", thread="drafter-1")
    world.now_attempt.log = replace(world.now_attempt.log, tracebacks=(found,), traceback_is_last=False)
    at = world.now_s
    world.run(60)
    stop_at = next(when for when, action in world.actions if isinstance(action, Stop))
    assert stop_at - at <= 13
    launch = [action for _, action in world.actions if isinstance(action, Launch)][-1]
    assert launch.remedies == ("process_workers",)
    assert any(one.cause == "fx_tracing_race" for one in world.memory.incidents)


def test_a_busy_gpu_without_a_holder_refuses_the_first_start_with_evidence() -> None:
    world = World(gpus=gpus(8), proof_free=False)
    world.gpus[3] = replace(world.gpus[3], util_pct=100.0, power_w=125.0)
    world.run(10)
    assert (world.verdict, world.decision.assessment.attempt) == (Verdict.STALE_PROCESS, 0)
    assert world.decision.assessment.final and not world.trainers
    world.run(5)
    assert world.decision.assessment.cause == "zombie_gpu_memory", "the refusal keeps its cause"
    texts = [f"{item.what} {item.value}" for one in world.memory.incidents for item in one.evidence]
    assert "GPU 3 utilisation 100.0" in texts and "GPU 3 memory 0" in texts
    world.proof_free = True
    world.run(60)
    assert not world.trainers, "a refused start must not begin by itself later"


def test_our_own_leftover_is_ended_before_the_launch() -> None:
    world = World(stale_ours=1).run(5)
    assert world.kinds()[:2] == ["EndStale", "Launch"]


def test_a_restart_waits_for_the_proof_and_says_so() -> None:
    world = trained()
    world.die(70, exc="RuntimeError", message="boom")
    world.proof_free = False
    world.run(120)
    assert len(world.trainers) == 1 and world.verdict is Verdict.STALE_PROCESS
    world.proof_free = True
    world.run(10)
    assert len(world.trainers) == 2


def test_a_stop_goal_ends_the_attempt_and_nothing_is_launched_after_it() -> None:
    world = trained()
    world.goal = Goal("stop", 2)
    world.run(600)
    assert world.verdict is Verdict.STOPPED and world.decision.assessment.final and len(world.trainers) == 1
    world.goal = Goal("run", 3, end_attempt=1)
    world.run(20)
    assert len(world.trainers) == 2 and world.verdict is Verdict.RUNNING


def test_a_restart_asked_for_by_a_person_costs_no_budget_and_is_void_for_another_attempt() -> None:
    world = trained()
    world.goal = Goal("run", 2, end_attempt=1)
    world.run(30)
    assert len(world.trainers) == 2 and world.memory.restarts == ()
    world.goal = Goal("run", 3, end_attempt=1)
    world.run(60)
    assert len(world.trainers) == 2


def test_a_hold_watches_and_acts_on_nothing() -> None:
    world = trained()
    world.goal = Goal("hold", 2)
    world.now_attempt.mode = "blocked"
    world.run(600)
    assert not world.signals()


def test_a_clean_end_is_completed_only_with_the_marker() -> None:
    world = trained()
    world.die(0, done=True)
    world.tick()
    assert world.verdict is Verdict.COMPLETED and world.decision.assessment.final
    other = trained()
    other.die(0)
    other.tick()
    assert (other.verdict, other.decision.assessment.cause) == (Verdict.CRASH, "false_success")


def test_leftovers_of_an_ended_attempt_are_ended_before_the_next_one() -> None:
    world = trained()
    world.now_attempt.leftovers = 2
    world.die(70, exc="RuntimeError", message="boom")
    world.run(20)
    assert world.kinds() == ["Launch", "Stop", "Launch"]


def test_a_suspended_machine_starts_the_window_anew() -> None:
    world = trained()
    world.now_s += 3600
    world.now_attempt.launched_at_s += 3600
    world.run(20)
    assert not world.said(Verdict.HANG) and not world.signals()


def test_a_new_agent_confirms_nothing_before_one_full_confirm_time_of_its_own() -> None:
    world = trained()
    world.now_attempt.mode = "blocked"
    world.run(80)
    world.restart_agent()
    world.run(80)
    assert not world.signals()
    world.run(30)
    assert world.signals()


def test_restarts_without_progress_are_bounded_in_a_day() -> None:
    world = World(policy=replace(Policy(), max_restarts=100))
    for index in range(40):
        world.run(40)
        if world.now_attempt.alive:
            world.die(signal=11) if index % 2 else world.die(78, exc="RuntimeError", message=str(index))
    assert len(world.trainers) <= 9


def test_an_observed_run_is_never_touched() -> None:
    world = trained(policy=replace(Policy(), preset="observe"))
    world.now_attempt.mode = "blocked"
    world.run(900)
    assert not world.signals()


def test_a_careful_policy_restarts_a_death_and_only_pages_a_hang() -> None:
    world = trained(policy=replace(Policy(), preset="careful"), kind="foreign")
    world.now_attempt.mode = "blocked"
    world.run(300)
    assert not world.signals()
    world.die(signal=11)
    world.run(20)
    assert len(world.trainers) == 2
