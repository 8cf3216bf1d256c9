"""What a person is told before an attempt is ended: only what it really costs."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_supervise.cli import goals
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble, run_doc

RUN = "qwen-2611300501-1f2e"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "it is at step 120; the last complete checkpoint is at 100, 20 behind"),
        ({"checkpoint_step": None}, "it is at step 120 and no complete checkpoint is known"),
        # The attempt has just begun: what an earlier one saved stays.
        (
            {"verdict": "starting", "attempt": 2, "step": None},
            "it has made no step yet that we know of; the last complete checkpoint is at 100",
        ),
        ({"verdict": "starting", "step": None, "checkpoint_step": None}, "it has made no step yet that we know of"),
        ({"step": 5}, "it is at step 5; the last complete checkpoint is at 100, from an earlier attempt"),
        # Silent about its steps: nobody may say that nothing is lost.
        ({"step": None, "checkpoint_step": None}, "its step is not known, nor what ending it loses"),
        (
            {"kind": "adopted", "verdict": "starting", "step": None, "checkpoint_step": None},
            "its step is not known, nor what ending it loses",
        ),
        # It has ended: what it had not saved is gone whatever is done now.
        (
            {"verdict": "crash", "attempt_ended": True, "step": 40, "checkpoint_step": 30},
            "attempt 1 has ended already at step 40, so no step is lost by this; the last complete checkpoint is at 30",
        ),
        (
            {"verdict": "early_crash", "attempt_ended": True, "step": None, "checkpoint_step": None},
            "attempt 1 has ended already, so no step is lost by this; no complete checkpoint is known",
        ),
        ({"verdict": "stale_process", "attempt": 0}, "no attempt was launched yet, so no step is lost"),
    ],
)
def test_the_loss_is_that_of_the_attempt_that_would_end(changes: dict[str, Any], said: str) -> None:
    run = run_doc(**changes)
    assert goals.losses(run)[1] == said
    saves = any("saves a checkpoint when it is asked" in line for line in goals.losses(run))
    alive = not run["attempt_ended"] and run["attempt"] > 0
    assert saves == (alive and run["kind"] == "bundled"), "only what lives can save anything"


def test_an_old_step_is_told_with_its_age() -> None:
    run = run_doc(reachable=False, verdict="host_unreachable", news_age_s=7500.0)
    assert "that is 2h 05m old: the host does not answer" in goals.losses(run)


def test_a_run_that_is_over_has_nothing_to_lose() -> None:
    assert goals.losses(run_doc(final=True, verdict="completed")) == []


@pytest.mark.parametrize(("verb", "costs"), [("stop", True), ("restart", True), ("hold", False), ("release", False)])
def test_a_dry_run_tells_a_cost_only_where_an_attempt_ends(
    invoke: Invoke, daemon: DaemonDouble, verb: str, costs: bool
) -> None:
    want = "hold" if verb == "release" else "run"
    daemon.runs = [run_doc(goal={"want": want, "generation": 2, "acknowledged": True})]
    ran = invoke(verb, "qwen", "--dry-run")
    assert ran.code == 0 and ("20 behind" in ran.err) == costs
    assert daemon.posts(f"/runs/{RUN}/goal") == []


def test_the_processes_of_somebody_else_would_be_ended_or_will_be(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(kind="adopted")]
    members = [{"pid": 812, "comm": "python3", "state": "S"}]
    daemon.records[RUN] = [{"row": 1, "kind": "observation", "obs": {"processes": {"members": members}}}]
    for arguments in (["stop", "qwen"], ["stop", "qwen", "--dry-run"]):
        ran = invoke(*arguments)
        assert "would be ended:\n  pid 812  python3" in ran.err
    daemon.looks[RUN] = [run_doc(kind="adopted", verdict="stopped", final=True, exit_status=103)]
    ran = invoke("stop", "qwen", "--yes")
    assert "will be ended:\n  pid 812  python3" in ran.err
