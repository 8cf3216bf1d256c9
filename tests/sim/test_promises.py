"""The promises as properties: random faults on the virtual clock, whatever the order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_supervise.core.actions import Launch, Stop
from dflash_supervise.core.decide import Snapshot, decide
from dflash_supervise.core.facts import Goal, Missing, Observation
from dflash_supervise.core.policy import Policy
from tests.sim.world import GIB, Trainer, World, gpus

pytestmark = pytest.mark.no_cover  # many thousand ticks, and the stories cover every branch

FAULTS = st.sampled_from(
    ["crash", "keyerror", "killed", "oom", "segfault", "hang", "spin", "stop", "save", "heal", "leftover", "agent",
     "suspend", "stale", "free", "hold", "release", "person", "dark", "light", "reboot", "stopped", "traced", "flush",
     "remote", "sockets", "worker", "foreign", "alone", "full", "room", "forget", "remember", "done", "evaluate",
     "busy"]
)  # fmt: skip
SCRIPTS = st.lists(st.tuples(FAULTS, st.integers(1, 150)), min_size=1, max_size=8)


MODES = {"hang": "blocked", "spin": "spinning", "stop": "stopped", "save": "saving", "busy": "busy"}
ENDS: dict[str, dict[str, object]] = {
    "crash": {"code": 70, "exc": "RuntimeError", "message": "boom"},
    "keyerror": {"code": 70, "exc": "KeyError", "message": "boom"},
    "full": {"code": 74, "exc": "OSError", "message": "[Errno 28] No space left on device"},
    "killed": {"signal": 9, "oom_kills": 0},
    "oom": {"signal": 9, "oom_kills": 1},
    "segfault": {"signal": 11},
    "done": {"code": 0, "done": True},
}


def play(world: World, fault: str) -> None:
    generation = world.goal.generation + 1
    if fault == "agent":
        world.restart_agent()
    elif fault == "suspend":
        world.now_s += 1800
    elif fault in ("stale", "free"):
        world.proof_free = fault == "free"
    elif fault in ("foreign", "alone"):
        world.foreign = fault == "foreign"
    elif fault in ("hold", "release", "stopped"):
        want = {"hold": "hold", "release": "run", "stopped": "stop"}[fault]
        world.goal = Goal(want, generation)
    elif fault in ("dark", "light"):
        world.hidden = {"processes", "gpus"} if fault == "dark" else set()
    elif fault in ("forget", "remember"):
        world.forgotten = fault == "forget" and bool(world.trainers)
    elif fault == "reboot":
        world.boot_id += "x"
    elif fault == "room":
        world.disk_free_bytes = 100 * GIB
    elif world.trainers and world.trainer.alive:
        play_trainer(world, world.trainer, fault)


def play_trainer(world: World, trainer: Trainer, fault: str) -> None:
    if fault in ENDS:
        world.disk_free_bytes = 0 if fault == "full" else world.disk_free_bytes
        world.die(**ENDS[fault])  # type: ignore[arg-type]
    elif fault == "person":
        world.goal = Goal("run", world.goal.generation + 1, end_attempt=trainer.number)
    elif fault == "leftover":
        trainer.leftovers = 2
    elif fault == "traced":
        trainer.tracer_pid = 7
    elif fault == "flush":
        trainer.state = "D"
    elif fault == "remote":
        trainer.stack = "thread MainThread: read (client.py:1)"
    elif fault == "sockets":
        world.socket_rate = 3
    elif fault == "worker":
        trainer.dead = set(list(trainer.worker_steps)[:1])
    elif fault == "evaluate":
        trainer.phase = "evaluating"
    elif fault == "heal":
        trainer.mode, trainer.phase, trainer.tracer_pid, trainer.state = "training", None, 0, "S"
    else:
        trainer.mode = MODES[fault]


def told(script: list[tuple[str, int]], policy: Policy) -> World:
    world = World(policy=policy, gpus=gpus(2)).run(3)
    world.trainer.worker_steps = {"drafter-0": 0, "drafter-1": 0}
    world.run(27)
    for fault, seconds in script:
        play(world, fault)
        world.run(seconds)
    return world


@settings(max_examples=25, deadline=None)
@given(SCRIPTS, st.sampled_from(["auto", "careful", "observe"]))
def test_never_two_attempts_and_never_a_launch_without_proof(script: list[tuple[str, int]], preset: str) -> None:
    world = told(script, replace(Policy(), preset=preset))  # the world itself asserts both at each launch
    assert world.most_alive <= 1
    launched = [action.attempt for _, action in world.actions if isinstance(action, Launch)]
    assert launched == sorted(set(launched))
    assert all(action.because for _, action in world.actions)


@settings(max_examples=20, deadline=None)
@given(SCRIPTS)
def test_automatic_restarts_without_credit_stay_within_the_day(script: list[tuple[str, int]]) -> None:
    script = [(fault, seconds) for fault, seconds in script if fault not in ("person", "hold", "release", "stopped")]
    world = told(script * 2, Policy())
    assert len(world.trainers) <= 1 + Policy().max_restarts_day


@settings(max_examples=12, deadline=None)
@given(SCRIPTS)
def test_the_same_snapshot_gives_the_same_decision(script: list[tuple[str, int]]) -> None:
    world = told(script, Policy())
    snapshot = Snapshot(world.goal, world.policy, world.observe(), world.memory, world.kind)
    assert decide(snapshot) == decide(snapshot)


def without(world: World, hidden: str) -> Observation:
    """What the world shows when one reading is not answered."""
    seen = world.observe()
    if hidden in ("tracer", "sockets", "io"):
        if isinstance(seen.processes, Missing):
            return seen
        gone = {"tracer": {"tracer_pid": None}, "io": {"read_bytes": None, "write_bytes": None}}.get(hidden, {})
        members = tuple(replace(one, **gone) for one in seen.processes.members)
        sockets = None if hidden == "sockets" else seen.processes.socket_bytes
        return replace(seen, processes=replace(seen.processes, members=members, socket_bytes=sockets))
    return replace(seen, **{hidden: Missing("hidden by the test")})  # type: ignore[arg-type]


@settings(max_examples=20, deadline=None)
@given(SCRIPTS, st.sampled_from(["processes", "progress", "log", "gpus", "host", "stacks", "tracer", "sockets", "io"]))
def test_replacing_a_reading_by_ignorance_never_adds_a_heuristic_signal(
    script: list[tuple[str, int]], hidden: str
) -> None:
    world = told(script, Policy())
    snapshot = Snapshot(world.goal, world.policy, world.observe(), world.memory, world.kind)
    known = {type(action) for action in decide(snapshot).actions}
    blind = decide(replace(snapshot, observation=without(world, hidden)))
    assert not any(isinstance(action, Stop) and Stop not in known for action in blind.actions)
    assert not any(isinstance(action, Launch) and Launch not in known for action in blind.actions)


@settings(max_examples=20, deadline=None)
@given(SCRIPTS)
def test_after_an_acknowledged_stop_nothing_is_launched(script: list[tuple[str, int]]) -> None:
    world = told(script, Policy())
    world.hidden, world.forgotten, world.goal = set(), False, Goal("stop", world.goal.generation + 1)
    before = len(world.trainers)
    world.run(120)
    assert len(world.trainers) == before
    assert world.decision is not None and world.decision.assessment.final
