"""The promises as properties: random faults on the virtual clock, whatever the order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_supervise.core.actions import Launch, Stop
from dflash_supervise.core.decide import Snapshot, decide
from dflash_supervise.core.facts import Goal
from dflash_supervise.core.policy import Policy
from tests.sim.world import World, gpus

FAULTS = st.sampled_from(
    ["crash", "keyerror", "killed", "oom", "segfault", "hang", "spin", "stop", "save", "heal", "leftover", "agent", "suspend",
     "stale", "free", "hold", "release", "person", "dark", "light", "reboot"]
)  # fmt: skip
SCRIPTS = st.lists(st.tuples(FAULTS, st.integers(1, 200)), min_size=1, max_size=10)


def play(world: World, fault: str) -> None:
    trainer = world.now_attempt
    alive = trainer is not None and trainer.alive
    if fault == "agent":
        world.restart_agent()
    elif fault == "suspend":
        world.now_s += 1800
    elif fault in ("stale", "free"):
        world.proof_free = fault == "free"
    elif fault in ("hold", "release"):
        world.goal = Goal("hold" if fault == "hold" else "run", world.goal.generation + 1)
    elif fault == "person" and trainer is not None:
        world.goal = Goal("run", world.goal.generation + 1, end_attempt=trainer.number)
    elif fault in ("dark", "light"):
        world.hidden = {"processes", "gpus"} if fault == "dark" else set()
    elif fault == "reboot":
        world.boot_id += "x"
    elif alive and trainer is not None:
        if fault in ("crash", "keyerror"):
            world.die(70, exc="KeyError" if fault == "keyerror" else "RuntimeError", message="boom")
        elif fault in ("killed", "oom", "segfault"):
            world.die(signal=11 if fault == "segfault" else 9, oom_kills=int(fault == "oom"))
        elif fault == "leftover":
            trainer.leftovers = 2
        else:
            modes = {"hang": "blocked", "spin": "spinning", "stop": "stopped", "save": "saving", "heal": "training"}
            trainer.mode = modes[fault]


def told(script: list[tuple[str, int]], policy: Policy) -> World:
    world = World(policy=policy, gpus=gpus(2))
    world.run(30)
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
    script = [(fault, seconds) for fault, seconds in script if fault not in ("person", "hold", "release")]
    world = told(script * 3, Policy())
    assert len(world.trainers) <= 1 + Policy().max_restarts_day


@settings(max_examples=12, deadline=None)
@given(SCRIPTS)
def test_the_same_snapshot_gives_the_same_decision(script: list[tuple[str, int]]) -> None:
    world = told(script, Policy())
    snapshot = Snapshot(world.goal, world.policy, world.observe(), world.memory, world.kind)
    assert decide(snapshot) == decide(snapshot)


@settings(max_examples=20, deadline=None)
@given(SCRIPTS, st.sampled_from(["processes", "progress", "log", "gpus", "host", "stacks"]))
def test_replacing_a_reading_by_ignorance_never_adds_a_heuristic_signal(
    script: list[tuple[str, int]], hidden: str
) -> None:
    world = told(script, Policy())
    snapshot = Snapshot(world.goal, world.policy, world.observe(), world.memory, world.kind)
    known = {type(action) for action in decide(snapshot).actions}
    world.hidden = world.hidden | {hidden}
    blind = decide(replace(snapshot, observation=world.observe()))
    assert not any(isinstance(action, Stop) and Stop not in known for action in blind.actions)
    assert not any(isinstance(action, Launch) and Launch not in known for action in blind.actions)


@settings(max_examples=20, deadline=None)
@given(SCRIPTS)
def test_after_an_acknowledged_stop_nothing_is_launched(script: list[tuple[str, int]]) -> None:
    world = told(script, Policy())
    world.hidden, world.goal = set(), Goal("stop", world.goal.generation + 1)
    before = len(world.trainers)
    world.run(120)
    assert len(world.trainers) == before
    assert world.decision is not None and world.decision.assessment.final
