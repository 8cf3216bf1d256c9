"""What a look at a run says of holds, of what comes next, and of an attempt that is over."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_supervise.cli import words
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble, run_doc

HELD = {
    "want": "hold",
    "generation": 3,
    "acknowledged": True,
    "hold_for_s": 7200.0,
    "hold_left_s": 4320.0,
    "hold_until": "2026-11-30T07:12:00.000Z",
}
RESTART = {"what": "restart", "in_s": 600.0, "why": "restarting (1 of 3)"}


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_hold_is_seen_in_ps_and_in_status(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(goal=HELD, next={"what": "wait", "in_s": 4320.0, "why": "the run is on hold"})]
    line = words.hold_line(daemon.runs[0])
    assert "1h 12m left" in line
    assert f"qwen: {line}" in invoke("ps").out
    card = flat(invoke("status", "qwen").out)
    assert f"{line[:1].upper()}{line[1:]}." in card and "Next:" not in card, "the hold is what comes next"


def test_a_run_that_is_not_held_says_nothing_of_holds(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(), run_doc(name="over", goal=HELD, final=True, verdict="stopped", exit_status=103)]
    assert "on hold" not in invoke("ps").out + invoke("status", "qwen").out + invoke("status", "over").out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"next": RESTART, "verdict_age_s": 60.0}, "Next: restart in 9m 00s: restarting (1 of 3)."),
        ({"next": RESTART, "verdict_age_s": 60.0, "final": True, "exit_status": 100}, None),
        ({"next": {"what": "nothing", "in_s": None, "why": ""}, "verdict_age_s": 1.0}, None),
        ({"next": None}, None),
    ],
)
def test_status_counts_down_to_what_comes_next(
    invoke: Invoke, daemon: DaemonDouble, changes: dict[str, Any], said: str | None
) -> None:
    daemon.runs = [run_doc(verdict="crash", attempt_ended=True, **changes)]
    card = flat(invoke("status", "qwen").out)
    assert said in card if said else "Next:" not in card


def test_the_phase_of_an_attempt_that_is_over_is_told_as_its_last(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(verdict="crash", attempt_ended=True)]
    assert "training, when it ended" in invoke("status", "qwen").out
    daemon.runs = [run_doc(verdict="completed", phase="done", attempt_ended=True, final=True, exit_status=0)]
    assert "when it ended" not in invoke("status", "qwen").out
    daemon.runs = [run_doc(phase=None)]
    assert "phase      -" in invoke("status", "qwen").out
