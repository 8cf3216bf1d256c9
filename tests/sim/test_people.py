"""A person at the keyboard: goals that flip, signals, holds, restored files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_supervise.core.actions import Continue, Launch, Stop
from dflash_supervise.core.facts import Goal, StopReading
from dflash_supervise.core.memory import StopDecision
from dflash_supervise.core.policy import Policy
from dflash_supervise.core.verdicts import Verdict
from tests.sim.world import Trainer, World, trained


def launches(world: World) -> int:
    return len(world.trainers)


# ---- signals


def test_somebody_who_stops_the_process_again_means_it() -> None:
    world = trained()
    for _ in range(3):
        world.trainer.mode = "stopped"
        world.run(40)
        world.trainer.mode = "training"
        world.run(40)
    assert [type(one) for _, one in world.actions if isinstance(one, (Continue, Stop))] == [Continue]


def test_a_person_hears_of_the_one_sigcont_and_again_when_it_did_not_help() -> None:
    world = trained()
    world.trainer.mode = "stopped"
    world.run(22)
    incident = world.memory.incidents[0]
    assert (incident.severity, incident.response) == ("page", "wait") and "SIGCONT" in incident.response_text
    world.run(10)
    assert world.memory.incidents[0].response == "alert_human"
    world.trainer.mode = "training"
    world.run(3)
    assert [one.state for one in world.memory.incidents] == ["resolved"]


def test_a_stopped_process_that_goes_on_is_not_a_hang_for_the_time_it_stood() -> None:
    world = trained(policy=Policy(preset="careful"))
    world.trainer.mode = "stopped"
    world.run(900)
    assert world.pages() == ["stopped_process"]
    world.trainer.mode = "spinning"
    world.run(20)
    world.trainer.mode = "training"
    world.run(20)
    assert world.verdict is Verdict.RUNNING and not world.said_cause("none", Verdict.HANG)


def test_a_stopped_process_that_cannot_be_read_for_a_moment_is_not_resolved() -> None:
    world = trained(policy=Policy(preset="careful"))
    world.trainer.mode = "stopped"
    world.run(60)
    world.hidden = {"processes"}
    world.run(5)
    assert world.pages() == ["stopped_process"]


@pytest.mark.parametrize("how", ["signal", "shell", "ctrl-c", "torchrun", "terminated"])
def test_whoever_kills_a_run_by_hand_is_not_answered_with_a_restart_at_once(how: str) -> None:
    world = trained(kind="foreign", policy=Policy(preset="auto"))
    if how == "signal":
        world.die(signal=9, oom_kills=0)
    elif how == "shell":
        world.die(137, oom_kills=0)
    elif how == "ctrl-c":
        world.die(130, exc="KeyboardInterrupt")
    elif how == "terminated":
        world.die(143)
    else:
        world.die(1, exc="torch.distributed.elastic.multiprocessing.api.SignalException", message="got signal: 15")
    world.run(590)
    assert world.last.assessment.cause == "killed_externally" and launches(world) == 1
    world.run(30)
    assert launches(world) == 2


def test_a_shell_that_tells_of_an_oom_kill_is_believed() -> None:
    world = trained(kind="foreign", policy=Policy(preset="auto"))
    world.die(137, oom_kills=1)
    world.tick()
    assert world.last.assessment.cause == "host_oom_kill"


def test_a_careful_policy_never_restarts_what_somebody_killed() -> None:
    world = trained(kind="foreign", policy=Policy(preset="careful"))
    world.die(signal=9, oom_kills=0)
    world.run(1500, every_s=4)
    assert launches(world) == 1 and world.last.assessment.final and world.pages() == ["killed_externally"]


def test_after_a_kill_nothing_is_launched_while_others_use_the_gpus() -> None:
    world = trained()
    world.die(signal=9, oom_kills=0)
    world.run(30)
    world.foreign = True
    world.run(3600, every_s=4)
    assert launches(world) == 1 and world.verdict is Verdict.STALE_PROCESS and "foreign_process" in world.pages()
    world.foreign = False
    world.run(20)
    assert launches(world) == 2 and world.pages() == []


def test_a_killed_launcher_whose_work_trains_on_is_left_alone_until_it_ends() -> None:
    world = trained(kind="foreign", policy=Policy(preset="auto"))
    world.trainer.leftovers = 4
    world.die(signal=1)
    for _ in range(1500):
        world.trainer.step += 1
        world.tick()
    assert not world.signals() and "trains on" in world.last.assessment.next.why
    world.run(100)
    assert world.signals() and launches(world) == 2


def test_the_leftovers_of_a_killed_launcher_are_ended_when_the_wait_is_over_or_when_a_person_says_stop() -> None:
    for goal, seconds in ((Goal("run", 1), 620), (Goal("stop", 2), 3)):
        world = trained(kind="foreign", policy=Policy(preset="auto"))
        world.trainer.leftovers = 4
        world.die(signal=9, oom_kills=0)
        world.run(300)
        assert not world.signals()
        world.goal = goal
        world.run(seconds)
        assert world.trainer.leftovers == 0


# ---- goals


def test_a_stop_that_is_taken_back_while_it_is_under_way_ends_in_a_new_attempt() -> None:
    world = trained()
    world.trainer.dies_on_term_s = 20
    world.goal = Goal("stop", 2)
    world.run(5)
    world.goal = Goal("run", 3, end_attempt=1)
    world.run(40)
    assert launches(world) == 2 and world.verdict is Verdict.RUNNING and not world.memory.incidents


def test_a_stop_file_that_is_removed_again_starts_nothing() -> None:
    world = trained()
    world.goal = Goal("stop", 1)
    world.run(10)
    world.goal = Goal("run", 1)
    world.run(600)
    assert launches(world) == 1 and world.verdict is Verdict.STOPPED and world.last.assessment.final


def test_a_restored_older_goal_undoes_no_stop() -> None:
    world = trained()
    world.goal = Goal("stop", 5)
    world.run(10)
    world.goal = Goal("run", 4, end_attempt=1)
    world.run(600)
    assert launches(world) == 1 and world.verdict is Verdict.STOPPED


def test_a_restored_older_stop_ends_no_run() -> None:
    world = trained()
    world.goal = Goal("run", 5)
    world.run(10)
    world.goal = Goal("stop", 2)
    world.run(600)
    assert not world.signals()


def test_a_hold_that_runs_out_restarts_nothing_that_was_final() -> None:
    world = trained()
    world.die(70, exc="KeyError", message="'x'")
    world.run(60)
    world.goal = Goal("hold", 2, hold_until_s=world.now_s + 60)
    world.run(900)
    assert launches(world) == 1 and world.last.assessment.final


def test_a_hold_after_a_stop_starts_nothing_when_it_runs_out() -> None:
    world = trained()
    world.goal = Goal("stop", 2)
    world.run(10)
    world.goal = Goal("hold", 3, hold_until_s=world.now_s + 60)
    world.run(900)
    assert launches(world) == 1 and world.verdict is Verdict.STOPPED


def test_a_restart_asked_for_before_a_hold_comes_after_it() -> None:
    world = trained()
    world.trainer.dies_on_term_s = 5
    world.goal = Goal("run", 2, end_attempt=1)
    world.run(2)
    world.goal = Goal("hold", 3, hold_until_s=world.now_s + 60)
    world.run(30)
    assert launches(world) == 1 and world.last.assessment.next.why == "the run is on hold"
    assert world.last.assessment.next.in_s is not None
    world.run(60)
    assert launches(world) == 2 and world.memory.restarts == ()


def test_a_release_ends_the_hold_and_no_wait_that_a_killed_run_has() -> None:
    world = trained()
    world.die(signal=9, oom_kills=0)
    world.run(60)
    world.goal = Goal("hold", 2)
    world.run(60)
    world.goal = Goal("run", 3)
    world.run(400)
    assert launches(world) == 1 and world.last.assessment.next.what == "restart"
    world.run(120)
    assert launches(world) == 2 and len(world.memory.restarts) == 1, "it counts as the automatic restart that it is"


def test_a_release_tries_nothing_again_that_needs_a_person() -> None:
    world = trained()
    world.goal = Goal("hold", 2)
    world.run(5)
    world.die(70, exc="KeyError", message="'x'")
    world.run(60)
    world.goal = Goal("run", 3)
    world.run(600)
    assert launches(world) == 1 and world.last.assessment.final


def test_a_release_after_a_stop_starts_nothing() -> None:
    world = trained()
    world.trainer.dies_on_term_s = 20
    world.goal = Goal("run", 2, end_attempt=1)
    world.run(2)
    for generation, want in enumerate(("stop", "hold", "run"), start=3):
        world.goal = Goal(want, generation)
        world.run(2)
    world.run(100)
    assert launches(world) == 1 and world.verdict is Verdict.STOPPED


def test_a_restart_that_comes_as_the_attempt_dies_by_itself_is_not_lost() -> None:
    world = trained()
    world.die(70, exc="KeyError", message="'x'")
    world.goal = Goal("run", 2, end_attempt=1)
    world.run(20)
    assert launches(world) == 2 and world.memory.restarts == ()


@pytest.mark.parametrize(
    ("goal", "verdict", "attempts"),
    [(Goal("stop", 2), Verdict.STOPPED, 1), (Goal("run", 2, end_attempt=1), Verdict.RUNNING, 2)],
)
def test_a_program_that_answers_our_signal_with_exit_code_0_has_not_completed(
    goal: Goal, verdict: Verdict, attempts: int
) -> None:
    world = trained(kind="foreign", policy=Policy(preset="auto"))
    world.trainer.term_code = 0
    world.goal = goal
    world.run(60)
    assert world.verdict is verdict and launches(world) == attempts
    assert [one.verdict for one in world.memory.ended] == [Verdict.STOPPED]


def test_a_program_that_had_reached_its_last_step_when_it_was_stopped_has_completed() -> None:
    world = trained(kind="foreign", policy=Policy(preset="auto"))
    world.trainer.term_code, world.trainer.steps_total = 0, world.trainer.step + 2
    world.run(3)
    world.goal = Goal("stop", 2)
    world.run(10)
    assert world.verdict is Verdict.COMPLETED


def test_a_crash_on_hold_is_restarted_when_the_hold_ends() -> None:
    world = trained()
    world.goal = Goal("hold", 2, hold_until_s=world.now_s + 100)
    world.run(10)
    world.die(signal=11)
    world.run(80)
    assert launches(world) == 1 and world.last.assessment.next.what == "wait"
    assert world.memory.incidents[-1].response_text == "on hold; when that ends: restarting (1 of 1)"
    world.run(30)
    assert launches(world) == 2 and len(world.memory.restarts) == 1


def test_a_crash_in_the_same_second_as_a_stop_stays_a_crash_in_the_history() -> None:
    world = trained()
    world.die(70, exc="KeyError", message="'x'")
    world.goal = Goal("stop", 2)
    world.run(5)
    assert world.memory.ended[0].cause == "bug_in_code" and not world.memory.ended[0].person
    assert world.verdict is Verdict.STOPPED and world.last.assessment.final
    assert [one.state for one in world.memory.incidents] == ["resolved"], "nobody waits for an answer any more"


def test_a_hang_that_a_person_ends_leaves_no_open_incident() -> None:
    world = trained(policy=Policy(preset="careful"))
    world.trainer.mode = "blocked"
    world.run(120)
    assert world.pages()
    world.goal = Goal("stop", 2)
    world.run(10)
    assert not world.pages() and world.last.assessment.final


def test_a_heuristic_stop_that_has_sent_nothing_is_taken_back_by_a_hold() -> None:
    world = trained()
    world.deaf = True
    world.trainer.mode = "blocked"
    world.run(95)
    assert world.signals() and world.memory.stop is not None
    world.goal, before = Goal("hold", 2), len(world.signals())
    world.run(60)
    world.trainer.mode = "training"
    world.run(10)
    world.goal = Goal("run", 3)
    world.run(60)
    assert len(world.signals()) == before and world.verdict is Verdict.RUNNING


def test_a_stop_that_the_trainer_has_heard_is_finished_on_hold_too() -> None:
    world = trained()
    world.trainer.mode, world.trainer.dies_on_term_s = "blocked", 20
    world.run(95)
    world.goal = Goal("hold", 2)
    assert isinstance(world.observe().stop, StopReading)
    world.run(60)
    assert not world.trainer.alive and world.memory.ended[0].verdict is Verdict.HANG and launches(world) == 1


def test_a_stop_remembered_of_another_attempt_does_not_tie_the_hands() -> None:
    world = trained()
    world.memory = replace(world.memory, stop=StopDecision(7, "another life's", Verdict.HANG, "none", world.now_s))
    world.goal = Goal("stop", 2)
    world.run(10)
    assert world.verdict is Verdict.STOPPED and world.last.assessment.final


def test_adopted_runs_are_ended_by_a_person_only_and_never_launched() -> None:
    world = trained(kind="foreign")
    world.kind = "adopted"
    world.trainer.mode = "spinning"
    world.run(600)
    assert not world.signals() and world.pages()
    world.goal = Goal("run", 2, end_attempt=1)
    world.run(30)
    assert not world.signals(), "nobody could start it again"
    world.goal = Goal("stop", 3)
    world.run(30)
    assert world.signals() and not world.trainer.alive
    world.goal = Goal("run", 4, end_attempt=1)
    world.run(300)
    assert launches(world) == 1 and not [one for _, one in world.actions[1:] if isinstance(one, Launch)]


def test_an_adopted_run_without_a_step_is_not_said_to_be_about_to_do_anything() -> None:
    world = World(kind="adopted")
    world.trainers.append(Trainer(1, world.now_s, start_s=10**6))
    world.run(20)
    assert world.verdict is Verdict.STARTING
    assert world.last.assessment.sentence == "it lives, and no step of it has been seen"
