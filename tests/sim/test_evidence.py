"""Which evidence explains a silence, which accuses, and how a culprit is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_supervise.core.actions import Launch
from dflash_supervise.core.decide import Snapshot, decide
from dflash_supervise.core.facts import GpuHolder, GpusReading, ProcessesReading
from dflash_supervise.core.policy import Policy
from dflash_supervise.core.verdicts import Finding, Status, Verdict
from tests.sim.world import World, gpus, process, trained


def hang_finding(world: World) -> Finding:
    return next(one for one in world.last.assessment.findings if one.rule == "hang")


def test_gpus_that_work_explain_a_flat_step() -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode = "generating"
    world.run(900)
    assert not world.said(Verdict.HANG) and "GPUs" in hang_finding(world).reason


def test_a_log_that_grows_explains_a_flat_step() -> None:
    world = trained()
    world.trainer.mode = "blocked"
    for _ in range(300):
        world.trainer.log = replace(world.trainer.log, size_bytes=world.trainer.log.size_bytes + 1)
        world.tick()
    assert not world.said(Verdict.HANG) and "log" in hang_finding(world).reason


def test_a_cpu_at_work_explains_a_flat_step_also_when_the_gpus_cannot_be_read() -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode = "busy"
    world.run(100)
    world.hidden = {"gpus"}
    world.run(300)
    assert not world.said(Verdict.HANG) and "CPU" in hang_finding(world).reason


@pytest.mark.parametrize("how", ["unknown", "stuck", "others"])
def test_gpus_that_do_not_say_allow_a_page_and_no_kill(how: str) -> None:
    world = trained(gpus=gpus(2))
    world.trainer.mode = "blocked"
    if how == "unknown":
        world.gpus[0] = replace(world.gpus[0], error="unknown error")
    elif how == "stuck":
        world.driver_stuck_s = 50.0
    else:
        theirs = (GpuHolder(7, None, ours=False),)
        world.gpus = [replace(gpu, holders=theirs) for gpu in world.gpus]
    world.run(300)
    assert not world.signals() and world.pages() == ["none"]


@pytest.mark.parametrize("holders", [None, (GpuHolder(7, None, ours=None),)])
def test_a_gpu_whose_holders_are_not_told_may_be_ours(holders: tuple[GpuHolder, ...] | None) -> None:
    world = trained(gpus=gpus(2))
    world.gpus = [replace(gpu, holders=holders) for gpu in world.gpus]
    world.trainer.mode = "spinning"
    world.run(95)
    assert world.signals() and world.memory.incidents[0].cause == "nccl_spin"


@pytest.mark.parametrize(
    ("stack", "cause"),
    [
        ("thread drafter-0: compile_fx_backward (compile_fx.py:2)", "compile_deadlock"),
        ("thread drafter-0: compile_lock (x.py:1), autograd", "compile_deadlock"),
        ("thread drafter-0: wait (workers.py:12)", "lock_deadlock"),
    ],
)
def test_stacks_name_the_deadlock(stack: str, cause: str) -> None:
    world = trained()
    world.policy = replace(world.policy, remedies=("process_workers",))
    world.trainer.mode, world.trainer.stack = "blocked", stack
    world.run(95)
    assert world.memory.incidents[0].cause == cause and stack in str(world.memory.incidents[0].evidence)
    world.run(30)
    launch = [action for _, action in world.actions if isinstance(action, Launch)][-1]
    assert launch.remedies == (("process_workers",) if cause == "compile_deadlock" else ())


def test_stacks_of_before_the_silence_accuse_nobody() -> None:
    world = trained()
    world.trainer.mode = "blocked"
    world.run(70)
    old = list(world.trainer.stacks)
    world.trainer.mode = "training"
    world.run(20)
    world.trainer.mode, world.trainer.stacks = "blocked", old
    world.run(60)
    assert not hang_finding(world).culprit
    world.run(60)
    assert world.signals()


def test_a_process_that_is_stopped_under_a_debugger_is_left_to_it() -> None:
    world = trained()
    world.trainer.mode, world.trainer.tracer_pid = "stopped", 77
    world.run(300)
    assert not world.signals() and not world.memory.incidents
    found = {one.rule: one.status for one in world.last.assessment.findings}
    assert found["hang"] is Status.UNKNOWN and found["stopped_process"] is Status.OK


def test_a_worker_that_lags_is_not_judged_by_an_agent_that_has_just_come() -> None:
    world = World(policy=Policy(preset="careful")).run(3)
    world.trainer.worker_steps = {"drafter-0": 0, "drafter-1": 0}
    world.run(60)
    world.trainer.slow = {"drafter-1"}
    world.run(100)
    assert world.pages() == ["worker_dead"]
    world.restart_agent()
    world.run(20)
    assert world.pages() == ["worker_dead"], "not to have watched resolves nothing"
    world.run(100)
    world.trainer.slow = set()
    world.run(2)
    assert not world.pages()


def test_a_second_agent_that_finds_a_training_attempt_believes_its_first_number() -> None:
    world = trained()
    world.memory = replace(world.memory, attempt=replace(world.memory.attempt, number=0), ended=())
    world.tick()
    assert world.verdict is Verdict.RUNNING


def test_a_process_of_the_set_forbids_a_launch_whatever_the_proof_says() -> None:
    world = World(policy=Policy(preset="observe"))
    world.now_s += 1
    seen = replace(world.observe(), processes=ProcessesReading((process(9, "token"),), None, None))
    decision = decide(Snapshot(world.goal, world.policy, seen, world.memory, "bundled"))
    assert not decision.actions and "processes are left" in decision.assessment.next.why


def test_a_policy_that_turned_careful_during_a_stop_does_not_restart() -> None:
    world = trained()
    world.trainer.mode, world.trainer.dies_on_term_s = "blocked", 10
    while not world.signals():
        world.tick()
    world.policy = Policy(preset="careful")
    world.run(60)
    assert len(world.trainers) == 1 and world.last.assessment.final and world.verdict is Verdict.HANG


def test_a_host_without_gpus_leaves_nothing_to_know_about_them() -> None:
    world = trained()
    assert isinstance(world.observe().gpus, GpusReading)
    world.trainer.mode = "blocked"
    world.run(95)
    assert world.signals()


def test_what_a_hang_was_ended_for_is_still_told_when_it_has_ended() -> None:
    world = trained()
    world.trainer.mode = "blocked"
    while world.trainer.alive:
        world.tick()
    world.tick()
    [end] = [one for one in world.last.assessment.findings if one.rule == "ended"]
    told = {item.what for item in end.evidence}
    assert {"step", "stack", "ran for"} <= told, told
    world.run(600)
    assert world.verdict is Verdict.RUNNING and world.memory.incidents[0].state == "resolved"
    assert any(item.what == "stack" for item in world.memory.incidents[0].evidence)
