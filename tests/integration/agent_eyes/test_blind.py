"""A workspace that does not answer stops no tick, and nothing is launched on what cannot be written down."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dflash_supervise.agent import loop
from dflash_supervise.agent.files import write_json
from dflash_supervise.agent.goals import Goals
from dflash_supervise.agent.gpus import GpuProbe
from dflash_supervise.agent.journal import Journal
from dflash_supervise.agent.known_attempt import KnownAttempt
from dflash_supervise.agent.loop import Agent, Tick
from dflash_supervise.agent.proc import start_ticks
from dflash_supervise.agent.record_writer import RecordWriter
from dflash_supervise.agent.runtime import Runtime, boottime_s, machine_identity
from dflash_supervise.agent.spec_store import apply_spec
from dflash_supervise.agent.workspace import WorkspaceEyes, WorkspaceLook
from dflash_supervise.core.actions import Launch
from dflash_supervise.core.decide import Decision, Snapshot, decide
from dflash_supervise.core.memory import Memory
from tests.records import read_all
from tests.unit.agent_eyes.test_spec import RUN, body

PATIENCE_S = 30.0


class Gate:
    """Stands in for a mount that can stop answering."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_(self) -> None:
        assert self._open.wait(PATIENCE_S)


@dataclass
class Mount:
    """Two gates of one workspace: what is read and what is written."""

    reads: Gate
    writes: Gate
    launched: list[int]


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    found = Mount(Gate(), Gate(), [])

    def launch(run_dir: str, number: int, *rest: object, **more: object) -> int:
        found.launched.append(number)
        return os.getpid()

    monkeypatch.setattr("dflash_supervise.agent.hands.launching.launch", launch)
    yield found
    found.reads.open()
    found.writes.open()


@pytest.fixture
def agent(
    mount: Mount, workspace: Path, isolated_home: Path, nvml_command: list[str], no_devices: str
) -> Iterator[Agent]:
    """An agent in this process, on a workspace behind the gates."""

    class Eyes(WorkspaceEyes):
        def look(self, now_s: float) -> WorkspaceLook:
            mount.reads.pass_()
            return super().look(now_s)

    class Writer(RecordWriter):
        def write(self, lines: list[tuple[str, bytes]], sync: bool) -> None:
            mount.writes.pass_()
            super().write(lines, sync)

    runtime = Runtime.open()
    apply_spec(runtime, str(workspace), body(workspace, gpus="none"), 0)
    run_dir, machine = str(workspace / ".dflash/runs" / RUN), machine_identity()
    agent = Agent(
        runtime=runtime,
        run_dir=run_dir,
        machine=machine,
        journal=Journal(run_dir, RUN, Writer(run_dir + "/records", runtime.spare_records(RUN), "000001-aaaa")),
        eyes=Eyes(run_dir, RUN),
        probe=GpuProbe(nvml_command, devices=no_devices),
        goals=Goals(runtime, RUN, boottime_s(), str(machine["boot_id"])),
        memory=Memory(),
        options={},
    )
    yield agent
    mount.reads.open()
    mount.writes.open()
    assert agent.journal.close(PATIENCE_S)
    agent.probe.close()


def tick_until(agent: Agent, fits: Callable[[Tick], bool]) -> Tick:
    """The first tick that fits."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        tick = agent.tick(boottime_s())
        if fits(tick):
            return tick
        time.sleep(0.05)
    raise AssertionError("no tick came to it")


def wants_launch(tick: Tick) -> bool:
    return tick.decision is not None and any(isinstance(action, Launch) for action in tick.decision.actions)


def test_before_the_first_answer_nothing_is_decided(agent: Agent, mount: Mount) -> None:
    mount.reads.close()
    for _ in range(3):
        assert agent.tick(boottime_s()) == Tick()
    assert agent.eyes.answered is False


def test_a_launch_that_cannot_be_written_down_is_not_done(agent: Agent, mount: Mount) -> None:
    mount.writes.close()
    tick_until(agent, wants_launch)
    agent.tick(boottime_s())
    assert mount.launched == []
    mount.writes.open()
    tick_until(agent, lambda tick: bool(mount.launched))
    assert mount.launched[0] == 1
    assert agent.journal.flush(None, durable=True, wait_s=PATIENCE_S)
    refused = [r for r in read_all(agent.run_dir + "/records") if r["kind"] == "outcome" and not r["ok"]]
    assert "durable" in refused[0]["detail"]


def test_a_workspace_that_went_blind_is_told_and_forbids_the_launch(agent: Agent, mount: Mount) -> None:
    mount.writes.close()
    tick_until(agent, wants_launch)
    mount.reads.close()
    tick_until(agent, lambda tick: tick.seen is not None and tick.seen.workspace_blind_s > 0)
    mount.writes.open()
    for _ in range(5):
        tick = agent.tick(boottime_s())
        assert tick.seen is not None and tick.seen.workspace_blind_s > 0
        assert tick.decision is not None
        assert "blind: workspace" in [note.slug for note in tick.decision.assessment.notes]
    assert mount.launched == []
    mount.reads.open()
    tick_until(agent, lambda tick: bool(mount.launched))


def test_a_stop_goal_reaches_an_agent_whose_workspace_is_blind(agent: Agent, mount: Mount, workspace: Path) -> None:
    mount.writes.close()
    tick_until(agent, wants_launch)
    mount.reads.close()
    apply_spec(agent.runtime, str(workspace), body(workspace, 2, "stop", gpus="none"), 1)
    told = tick_until(agent, lambda tick: tick.decision is not None and tick.decision.assessment.final)
    assert told.decision is not None and told.decision.memory.goal_generation == 2
    assert not told.over, "the last word waits for the workspace"


@pytest.mark.parametrize("fault", [None, TypeError("a fault of ours")])
def test_a_stop_ends_the_trainer_of_an_agent_that_has_never_seen_its_workspace(
    agent: Agent, mount: Mount, workspace: Path, fault: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = subprocess.Popen(["sleep", "600"], start_new_session=True)
    key = {"pid": trainer.pid, "start_ticks": start_ticks(trainer.pid), "boot_id": agent.machine["boot_id"]}
    path = agent.runtime.known_attempt(RUN)
    write_json(path, {"attempt": 1, "launch": None, "child": {"attempt": 1, **key}})
    monkeypatch.setattr(agent, "_known", KnownAttempt(path))
    if fault is None:
        mount.reads.close()
    else:
        monkeypatch.setattr(mount.reads, "pass_", lambda: raise_(fault))
    assert agent.tick(boottime_s()) == Tick() and trainer.poll() is None, "the goal is run: nothing is decided"
    apply_spec(agent.runtime, str(workspace), body(workspace, 2, "stop", gpus="none"), 1)
    tick_until(agent, lambda tick: trainer.poll() is not None)
    told = tick_until(agent, lambda tick: tick.decision is not None and tick.decision.assessment.final)
    assert not told.over, "the last word waits for the workspace"
    assert ("a fault of ours" in agent.eyes.trouble) is (fault is not None)
    assert mount.launched == []


def raise_(fault: Exception) -> None:
    raise fault


def test_what_could_not_be_started_again_is_ended_on_no_suspicion(
    agent: Agent, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(snapshot: Snapshot) -> Decision:
        asked.append(snapshot.policy.preset)
        return decide(snapshot)

    monkeypatch.setattr(loop, "decide", noted)
    (Path(agent.run_dir) / "attempts/1").mkdir(mode=0o700)
    apply_spec(agent.runtime, str(workspace), body(workspace, 2, gpus="none", policy={"preset": "auto"}), 1)
    tick_until(agent, lambda tick: tick.decision is not None)
    assert asked[-1] == "careful"
    write_json(agent.runtime.context_path(RUN), {"argv": ["train"]})
    agent.tick(boottime_s())
    assert asked[-1] == "auto"
