"""Launching: one try an attempt, and never two trainers, whoever dies in between."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

from dflash_supervise.agent.launch import LaunchRefused, close_interrupted, reap
from dflash_supervise.agent.proc import is_alive, start_ticks
from dflash_supervise.agent.procs import ProcessSet
from dflash_supervise.agent.runtime import boottime_s
from dflash_supervise.agent.stop import Stopper
from tests.integration.agent_hands.bench import Bench, end, read, until


def test_an_attempt_is_tried_once(bench: Bench) -> None:
    bench.context(["sh", "-c", "echo ran >> runs.txt"])
    bench.launch()
    bench.wait_exit()
    with pytest.raises(LaunchRefused, match="not new"):
        bench.launch()
    command = [*bench.agent_command, "keep", str(bench.run_dir), "1", bench.runtime.root]
    before = bench.exit()
    assert subprocess.run(command, env=bench.environ, timeout=30).returncode == 6
    assert (bench.workspace / "runs.txt").read_text() == "ran\n" and bench.exit() == before


def test_without_its_frozen_context_nothing_is_launched(bench: Bench) -> None:
    with pytest.raises(LaunchRefused, match="runtime folder"):
        bench.launch()
    assert not bench.attempt().exists()


@pytest.mark.parametrize("name", ["after_fork", "before_gate"])
def test_a_keeper_that_dies_before_the_gate_opens_leaves_no_trainer(bench: Bench, name: str) -> None:
    bench.context(["sh", "-c", "echo $$ >> ran; exec sleep 600"])
    bench.launch(1, failpoint=f"{name}@1")
    until((bench.attempt(1) / "train.log").exists, "the keeper was there")
    until(lambda: bench.runtime.keeper_holds(bench.run_id, 1) is False, "the keeper is dead")
    if name == "after_fork":
        assert bench.child(1) == {} and close_interrupted(bench.runtime, str(bench.run_dir), 1, "interrupted")
    else:
        until(lambda: not is_alive(*bench.main_key(1)), "the child has seen the end of its gate")
    bench.launch(2)
    ran = bench.workspace / "ran"
    until(lambda: ran.exists() and ran.read_text().endswith("\n"), "the second attempt runs")
    assert ran.read_text().split() == [str(bench.main_key(2)[0])]


def test_a_keeper_that_comes_after_its_attempt_was_closed_starts_nothing(bench: Bench) -> None:
    bench.context(["touch", "ran"])
    source = (
        f"import sys; sys.path.insert(0, {str(bench.agent_dir)!r})\n"
        "from dflash_supervise.agent.launch import launch\n"
        "from dflash_supervise.agent.runtime import Runtime\n"
        f"launch({str(bench.run_dir)!r}, 1, 'test', runtime=Runtime.open(),"
        " gpus=None, agent_command=('/bin/false',), now_s=1.0)\n"
    )
    env = {**bench.environ, "DFLASH_AGENT_OPTIONS": '{"failpoint": "after_intent"}'}
    assert subprocess.run([sys.executable, "-c", source], env=env, timeout=30).returncode == -signal.SIGKILL
    assert read(bench.attempt() / "launch.json")["because"] == "test"
    assert close_interrupted(bench.runtime, str(bench.run_dir), 1, "interrupted")
    command = [*bench.agent_command, "keep", str(bench.run_dir), "1", bench.runtime.root]
    assert subprocess.run(command, env=bench.environ, timeout=30).returncode == 6
    assert not (bench.workspace / "ran").exists() and bench.exit()["exec_error"] == "interrupted"


def test_a_keeper_that_dies_after_the_gate_leaves_one_trainer_and_no_second_can_start(bench: Bench) -> None:
    bench.context(["sh", "-c", "echo $$ >> ran; exec sleep 600"])
    bench.launch(1, failpoint="after_gate@1")
    until((bench.workspace / "ran").exists, "the trainer runs on")
    until(lambda: bench.runtime.keeper_holds(bench.run_id, 1) is False, "the keeper is dead")
    assert is_alive(*bench.main_key(1)) and bench.exit(1) == {}
    end(*bench.main_key(1))


def test_an_attempt_whose_keeper_lives_is_not_closed_as_interrupted(bench: Bench) -> None:
    bench.context(["sleep", "600"])
    bench.launch()
    bench.wait_child()
    assert close_interrupted(bench.runtime, str(bench.run_dir), 1, "interrupted") is False
    end(*bench.keeper_key())
    assert close_interrupted(bench.runtime, str(bench.run_dir), 1, "interrupted") is False  # it has a child
    assert bench.exit() == {} and is_alive(*bench.main_key())


def test_whatever_ever_ran_was_recorded_before_it_ran_also_when_keepers_are_killed_at_random(bench: Bench) -> None:
    """From the interpreter's start to the open gate and beyond: no instant leaves a trainer that nobody knows of."""
    bench.context(["sh", "-c", "echo $$ >> ran; exec sleep 600"])
    dice = random.Random(7)
    for number in range(1, 21):
        keeper = bench.launch(number)
        started = start_ticks(keeper)
        assert started is not None
        time.sleep(dice.uniform(0.0, 0.15))
        end(keeper, started)
        reap()
        processes = ProcessSet(bench.run_id, number)
        main = bench.main_key(number) if bench.child(number) else None
        stopper = Stopper(number, 0.0, 0.0, 10.0)

        def gone(
            stopper: Stopper = stopper, processes: ProcessSet = processes, main: tuple[int, int] | None = main
        ) -> bool:
            stopper.tick(1.0, processes.scan(main, None, now_s=boottime_s(), full=True))
            return stopper.finished

        until(gone, "nothing of the attempt is left")
    recorded = {bench.child(number)["pid"] for number in range(1, 21) if bench.child(number)}
    ran = {int(pid) for pid in (bench.workspace / "ran").read_text().split()} if recorded else set()
    assert ran <= recorded and len(recorded) > 0
