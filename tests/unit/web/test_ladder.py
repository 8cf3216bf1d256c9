"""Dead or alive: a tick is seen life, a cross its seen absence, a question mark everything else."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_supervise.core.facts import ExitReading, LogReading
from dflash_supervise.web.control import Doc
from dflash_supervise.web.ladder import NAMES, ladder
from tests.unit.web.docs import gpu_docs, observation, run_doc

NOW = 1_800_000_000.0


def marks(run: Doc, record: Doc | None, age_s: float | None = 0.5) -> dict[str, str]:
    return {rung.what: rung.mark for rung in ladder(run, record, age_s)}


def says(run: Doc, record: Doc | None, age_s: float | None = 0.5) -> dict[str, str]:
    return {rung.what: rung.says for rung in ladder(run, record, age_s)}


def test_a_healthy_run_has_five_ticks_and_ages_that_travel() -> None:
    run = run_doc("a", NOW)
    rungs = ladder(run, observation(run), 3.0)
    assert [rung.mark for rung in rungs] == ["yes"] * 5
    assert [round(rung.age_s or 0, 1) for rung in rungs] == [3.0, 3.6, 4.4, 3.2, 3.0]


def test_nothing_observed_is_unknown_and_never_dead() -> None:
    assert marks(run_doc("a", NOW), None, None) == dict.fromkeys(NAMES, "unknown")


def test_a_record_that_cannot_be_read_is_unknown_and_says_why() -> None:
    rungs = ladder(run_doc("a", NOW), {"obs": {"at_s": "soon"}}, 0.5)
    assert {rung.mark for rung in rungs} == {"unknown"}
    assert "cannot be read" in rungs[0].says


@pytest.mark.parametrize(("reachable", "age_s"), [(False, 1.0), (True, 16.0)])
def test_old_news_and_a_lost_host_prove_nothing(reachable: bool, age_s: float) -> None:
    run = run_doc("a", NOW, reachable=reachable)
    rungs = ladder(run, observation(run), age_s)
    assert {rung.mark for rung in rungs} == {"unknown"}
    assert all(rung.says.startswith("last seen: ") for rung in rungs)


@pytest.mark.parametrize(
    ("exit", "words"),
    [
        (ExitReading(1, None), "ended with exit code 1"),
        (ExitReading(None, 9), "ended by signal 9 (SIGKILL)"),
        (ExitReading(None, None, witnessed=False), "ended, and nobody saw how"),
        (ExitReading(None, None, exec_error="no such file: train.sh"), "never started: no such file: train.sh"),
    ],
)
def test_an_ended_process_says_how(exit: ExitReading, words: str) -> None:
    run = run_doc("a", NOW, verdict="crash")
    record = observation(run, exit=exit)
    assert marks(run, record)["process"] == "no"
    assert says(run, record)["process"] == words


def test_a_silent_log_proves_nothing_and_an_absent_one_is_seen_absence() -> None:
    run = run_doc("a", NOW)
    silent = observation(run)
    silent["ages"]["log"] = 500.0
    assert marks(run, silent)["log"] == "unknown"
    assert "silence alone proves nothing" in says(run, silent)["log"]
    assert marks(run, observation(run, log=LogReading(exists=False)))["log"] == "no"
    assert marks(run, observation(run, log=LogReading(exists=True, size_bytes=90)))["log"] == "unknown"


def test_a_flat_step_is_a_question_until_the_verdict_says_hang() -> None:
    record = observation(run_doc("a", NOW))
    record["ages"]["step"] = 45.0
    assert marks(run_doc("a", NOW), record)["step"] == "unknown"
    assert marks(run_doc("a", NOW, verdict="hang"), record)["step"] == "no"


def test_an_age_that_the_agent_does_not_tell_is_unknown_and_no_life() -> None:
    run = run_doc("a", NOW)
    record = {**observation(run), "ages": {}}
    by_name = {rung.what: rung for rung in ladder(run, record, 0.5)}
    assert by_name["step"].mark == "unknown" and by_name["step"].age_s is None


@pytest.mark.parametrize(
    ("kinds", "work", "power"),
    [
        (["working"] * 8, "yes", "yes"),
        (["spinning"] * 8, "no", "no"),  # 100 % of utilisation at idle power is no work
        (["idle"] * 7 + ["starved"], "yes", "yes"),
        (["idle"] * 7 + ["unknown"], "unknown", "unknown"),
        (["off"] * 8, "no", "no"),
    ],
)
def test_work_and_power_of_the_gpus(kinds: list[str], work: str, power: str) -> None:
    run = run_doc("a", NOW, gpus=gpu_docs(kinds))
    record: dict[str, Any] = observation(run)
    told = marks(run, record)
    assert (told["GPU work"], told["power"]) == (work, power)


def test_before_the_first_launch_there_is_no_process_to_call_dead() -> None:
    run = run_doc("a", NOW, attempt=0, step=None)
    assert marks(run, observation(run))["process"] == "unknown"
