"""Verbs that change something: they show the loss, ask, and believe only what the host has taken."""

from __future__ import annotations

import json

import pytest

from dflash_supervise.cli import goals
from dflash_supervise.cli.verbs import restart
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble, run_doc

RUN = "qwen-2611300501-1f2e"


def test_stop_shows_what_is_lost_and_does_not_act_without_a_yes(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    ran = invoke("stop", "qwen")
    assert ran.code == 2 and "--yes" in ran.err
    assert "at step 120; the last complete checkpoint is at 100, 20 behind" in ran.err
    assert daemon.posts(f"/runs/{RUN}/goal") == []


def test_stop_waits_until_the_host_says_that_it_has_ended(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    daemon.looks[RUN] = [
        run_doc(goal={"want": "stop", "generation": 2, "acknowledged": True}),
        run_doc(verdict="running"),
        run_doc(verdict="stopped", final=True, exit_status=103),
    ]
    ran = invoke("stop", "qwen", "--yes")
    assert ran.code == 0 and "qwen has ended: stopped" in ran.err
    assert daemon.posts(f"/runs/{RUN}/goal") == [{"want": "stop", "yes": True}]


def test_stop_exits_4_when_the_host_has_not_taken_it(
    invoke: Invoke, daemon: DaemonDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goals, "_ACKNOWLEDGE_S", 0.0)
    daemon.runs = [run_doc(goal={"want": "stop", "generation": 2, "acknowledged": False})]
    ran = invoke("stop", "qwen", "--yes")
    assert ran.code == 4 and "stays pending" in ran.err


def test_an_older_generation_that_was_taken_is_not_ours(
    invoke: Invoke, daemon: DaemonDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goals, "_ACKNOWLEDGE_S", 0.0)
    daemon.goal_answer = {"generation": 3, "acknowledged": False}
    daemon.runs = [run_doc()]  # generation 2 is acknowledged
    assert invoke("hold", "qwen").code == 4


def test_stopping_an_adopted_run_names_the_processes_first(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(kind="adopted")]
    members = [{"pid": 812, "comm": "python3", "state": "S"}, {"pid": 813, "comm": "gone", "state": "Z"}]
    daemon.records[RUN] = [{"row": 1, "kind": "observation", "obs": {"processes": {"members": members}}}]
    ran = invoke("stop", "qwen")
    assert "pid 812  python3" in ran.err and "813" not in ran.err
    assert ran.code == 2 and not daemon.posts(f"/runs/{RUN}/goal")


def test_a_run_that_has_ended_is_not_stopped_again(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(verdict="completed", final=True, exit_status=0)]
    assert invoke("stop", "qwen", "--yes").code == 0
    assert not daemon.posts(f"/runs/{RUN}/goal")


@pytest.mark.parametrize("verb", ["stop", "restart", "hold"])
def test_a_dry_run_changes_nothing(invoke: Invoke, daemon: DaemonDouble, verb: str) -> None:
    daemon.runs = [run_doc()]
    ran = invoke(verb, "qwen", "--dry-run", "--json")
    assert ran.code == 0 and json.loads(ran.out)["dry_run"] is True
    assert all(method == "GET" for method, _path, _body in daemon.asked)


def test_restart_ends_the_current_attempt_and_can_wait_for_the_next_ones_step(
    invoke: Invoke, daemon: DaemonDouble
) -> None:
    daemon.runs = [run_doc()]
    daemon.looks[RUN] = [run_doc(), run_doc(), run_doc(attempt=2, verdict="starting"), run_doc(attempt=2, step=101)]
    ran = invoke("restart", "qwen", "--yes", "--wait")
    assert ran.code == 0 and len(daemon.looks[RUN]) == 1, "the step of attempt 1 is not enough"
    assert daemon.posts(f"/runs/{RUN}/goal") == [{"want": "run", "end_attempt": "current", "yes": True}]
    assert restart.command.name == "restart"


def test_a_restart_names_the_attempt_also_of_a_run_that_has_ended(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(verdict="crash", final=True, exit_status=100)]
    assert invoke("restart", "qwen", "--yes").code == 0
    assert daemon.posts(f"/runs/{RUN}/goal") == [{"want": "run", "end_attempt": "current", "yes": True}]


def test_a_restart_says_that_it_ends_the_hold(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(goal={"want": "hold", "generation": 1, "acknowledged": True})]
    assert "the restart ends the hold" in invoke("restart", "qwen", "--yes").err
    daemon.runs = [run_doc()]
    assert "hold" not in invoke("restart", "qwen", "--yes").err


def test_hold_takes_a_duration_and_release_ends_it(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    assert "2h 00m" in invoke("hold", "qwen", "--for", "2h").err
    assert invoke("hold", "qwen", "--for", "soon").code == 2
    assert "not held" in invoke("release", "qwen").err
    daemon.runs = [run_doc(goal={"want": "hold", "generation": 2, "acknowledged": True})]
    assert "no longer held" in invoke("release", "qwen").err
    assert daemon.posts(f"/runs/{RUN}/goal") == [
        {"want": "hold", "hold_for_s": 7200.0, "yes": True},
        {"want": "run", "yes": True},
    ]


@pytest.mark.parametrize(
    ("event", "looks", "code"),
    [
        ("first-step", [run_doc(verdict="starting", step=None), run_doc(step=1)], 0),
        ("step=200", [run_doc(step=199), run_doc(step=200)], 0),
        ("incident", [run_doc(), run_doc(open_incidents=1)], 0),
        ("done", [run_doc(), run_doc(verdict="completed", final=True, exit_status=0)], 0),
        ("done", [run_doc(verdict="crash", final=True, exit_status=100)], 100),
        ("step=200", [run_doc(verdict="stopped", final=True, exit_status=103)], 103),
        ("first-step", [run_doc(verdict="early_crash", step=None, final=True, exit_status=100)], 100),
        ("first-step", [run_doc(verdict="completed", step=24, final=True, exit_status=0)], 0),
        ("step=24", [run_doc(verdict="completed", step=24, final=True, exit_status=0)], 0),
        ("step=100", [run_doc(step=20), run_doc(verdict="completed", step=24, final=True, exit_status=0)], 3),
        ("step=100", [run_doc(verdict="completed", step=None, final=True, exit_status=0)], 3),
        ("incident", [run_doc(verdict="completed", step=24, final=True, exit_status=0)], 3),
        ("incident", [run_doc(verdict="stopped", final=True, exit_status=103)], 103),
    ],
)
def test_wait_exits_0_for_the_event_and_else_as_the_run_ended(
    invoke: Invoke, daemon: DaemonDouble, event: str, looks: list[dict[str, object]], code: int
) -> None:
    daemon.runs = [run_doc()]
    daemon.looks[RUN] = looks
    assert invoke("wait", "qwen", "--for", event).code == code


def test_wait_says_that_what_it_waits_for_can_come_no_more(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(verdict="completed", step=24, final=True, exit_status=0)]
    assert "qwen completed at step 24 without step=100" in invoke("wait", "qwen", "--for", "step=100").err
    ran = invoke("wait", "qwen", "--for", "incident", "--json")
    assert (ran.code, json.loads(ran.out)["run"]["verdict"]) == (3, "completed")


def test_wait_gives_up_after_its_timeout(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    assert invoke("wait", "qwen", "--timeout", "0").code == 124
    assert invoke("wait", "qwen", "--for", "nonsense").code == 2


def test_a_goal_that_was_replaced_before_the_host_saw_it_is_said_to_be_so(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    daemon.goal_answer = {"generation": 2, "acknowledged": False, "superseded_by": 3}
    ran = invoke("restart", "qwen", "--yes")
    assert ran.code == 6 and "generation 3" in ran.err and "never in force" in ran.err
