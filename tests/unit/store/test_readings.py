"""The newest observation in a few rows: each with its age, and what nobody answered is None, never 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.core.facts import (
    AttemptFact,
    ExitReading,
    GpuReading,
    GpusReading,
    LogReading,
    Missing,
    Observation,
    ProcessesReading,
    ProcessFact,
    ProgressReading,
    WorkerFact,
)
from dflash_supervise.store.readings import readings, step_limit
from dflash_supervise.wire import to_json
from tests.unit.store.writing import RUN, Clock, Writer, open_store

Doc = dict[str, Any]

AGES = {"step": 1.4, "log": 0.6, "gpu_work": 0.2, "cpu": 0.2, "moved": 40.0}
BLIND = Missing("it does not answer")


def seen(**changes: Any) -> Observation:
    members = tuple(
        ProcessFact(pid, 1, 1, 1, 1, "S", "python", 9.0, 4, 1000, via="tree") for pid in (10, 11)
    )  # fmt: skip
    reading: dict[str, Any] = {
        "at_s": 5000.0,
        "attempt": AttemptFact(1, 4000.0),
        "processes": ProcessesReading(members, main_alive=True, keeper_alive=True),
        "progress": ProgressReading("training", 90, 240, workers=workers(2)),
        "log": LogReading(exists=True, size_bytes=1_843_200),
        "gpus": GpusReading((GpuReading("GPU-a", 0, age_s=0.3), GpuReading("GPU-b", 1), GpuReading("GPU-theirs", 2))),
        "host": BLIND,
        **changes,
    }
    return Observation(**reading)


def workers(count: int) -> tuple[WorkerFact, ...]:
    return tuple(WorkerFact(f"w-{n}", f"cuda:{n}", 90 - n, True) for n in range(count))


def rows(observation: Observation, age_s: float | None = 2.0, **record: Any) -> dict[str, tuple[Any, float | None]]:
    told = {"obs": to_json(observation), "gpu_class": {"GPU-a": "working", "GPU-b": "idle"}, "ages": AGES, **record}
    return {row["what"]: (row["value"], row["age_s"]) for row in readings(told, age_s)}


def test_every_family_has_its_row_and_ages_travel() -> None:
    assert rows(seen()) == {
        "processes": ("the main process lives, 2 in all", 2.0),
        "step": ("90 of 240, training", 3.4),
        "workers": ("w-0 at 90, w-1 at 89", 2.0),
        "log": (1_843_200, 2.6),
        "GPUs": ("1 working, 1 idle", 2.3),
        "CPU": ("in use", 2.2),
        "bytes moved": ("none", 42.0),
    }


def test_what_nobody_answered_is_none() -> None:
    blind = rows(seen(processes=BLIND, progress=BLIND, log=BLIND, gpus=BLIND), ages={})
    assert {what: value for what, (value, _age_s) in blind.items()} == dict.fromkeys(
        ("processes", "step", "log", "GPUs", "CPU", "bytes moved")
    )
    assert {age_s for _value, age_s in rows(seen(), None).values()} == {None}


def test_no_step_seen_is_said_and_is_no_zero() -> None:
    assert rows(seen(progress=ProgressReading("loading", None)))["step"][0] == "none seen yet, loading"
    assert "workers" not in rows(seen(progress=ProgressReading("loading", None)))


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (workers(8), "8 at steps 83 to 90"),
        ((*workers(4), WorkerFact("late", "cuda:9", None, False)), "5 at steps 87 to 90, 1 unknown; dead: late"),
        (tuple(WorkerFact(f"w-{n}", "", None, None) for n in range(5)), "5 at unknown steps"),
        (tuple(WorkerFact(f"w-{n}", "", 7, False) for n in range(6)), "6 at step 7; dead: w-0, w-1, w-2, w-3 and more"),
        ((WorkerFact("a", "", None, True),), "a at unknown"),
    ],
)
def test_workers_are_named_while_they_are_few(told: tuple[WorkerFact, ...], text: str) -> None:
    assert rows(seen(progress=ProgressReading("training", 90, workers=told)))["workers"][0] == text


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        (GpusReading((), absent="no NVIDIA device"), "no NVIDIA device"),
        (GpusReading((GpuReading("GPU-theirs", 0),)), "none of 1 is known to be this run's"),
        (GpusReading((GpuReading("GPU-a", 0),), stuck_s=31.0), "the driver has not answered for 31 s"),
    ],
)
def test_gpus_without_a_class_say_why(gpus: GpusReading, text: str) -> None:
    assert rows(seen(gpus=gpus))["GPUs"][0] == text


def test_an_attempt_that_has_ended_or_never_began_is_not_called_quiet() -> None:
    gone = ProcessesReading((), main_alive=False, keeper_alive=False)
    ended = rows(seen(processes=gone, exit=ExitReading(1, None), log=LogReading(exists=False)))
    assert ended["processes"][0] == "the main process has ended, 0 left alive"
    assert ended["log"] == ("there is no file", None)
    assert "CPU" not in ended
    nothing = rows(seen(attempt=AttemptFact(0)), ages={})
    assert list(nothing) == ["processes", "GPUs"] and nothing["processes"][0] == "nothing was launched yet"
    assert rows(seen(processes=ProcessesReading((), None, None)))["processes"][0] is None


def test_a_record_of_a_newer_agent_says_that_it_cannot_be_read() -> None:
    (row,) = readings({"obs": {"at_s": "soon"}}, 1.0)
    assert row["what"] == "observation" and "cannot be read" in row["value"]


# ---- the limit of a step


@pytest.mark.parametrize(
    ("confirm_s", "told", "view", "text"),
    [
        (90.0, {}, {}, "0.5 s; a flat step is suspect at 30 s and confirmed at 90 s (learned from its steps)"),
        (900.0, {}, {}, "0.5 s; a flat step is suspect at 300 s and confirmed at 900 s (the limit of the start)"),
        (
            3600.0,
            {"verdict": "starting", "phase": "compiling"},
            {"marks": [], "step": None},
            "unknown; a flat step is suspect at 1200 s and confirmed at 3600 s (the limit of the start)",
        ),
        (1800.0, {"phase": "saving"}, {}, "0.5 s; a flat step is confirmed at 1800 s (the limit while saving)"),
        (1800.0, {}, {"step": 240}, "0.0667 s; a flat step is confirmed at 1800 s (the limit of the end)"),
        (1800.0, {"phase": "done"}, {"marks": [[100.0, 90]]},
         "unknown; a flat step is confirmed at 1800 s (the limit of the end)"),
    ],
)  # fmt: skip
def test_a_step_is_held_against_the_limit_that_holds(confirm_s: float, told: Doc, view: Doc, text: str) -> None:
    rule = {"rule": "hang", "status": "ok", "confirm_s": confirm_s}
    verdict = {"verdict": "running", "phase": "training", "findings": [rule], **told}
    known = {"t_s": 110.0, "step": 90, "steps_total": 240, "marks": [[100.0, 70]], **view}
    if known["step"] == 240:
        known["marks"] = [[100.0, 90]]
    row = step_limit(verdict, known, {"preset": "auto"}, 7.0)
    assert row is not None and (row["value"], row["age_s"]) == (text, 7.0)


def test_without_a_limit_from_the_host_none_is_made_up() -> None:
    assert step_limit({"findings": [{"rule": "hang", "status": "unknown"}]}, {}, {}, 1.0) is None
    assert step_limit({}, {}, {}, 1.0) is None


def test_why_brings_the_readings_of_the_present_attempt_with_the_age_of_the_news(tmp_path: Path) -> None:
    clock = Clock()
    store, write = open_store(tmp_path, clock), Writer()
    looked = write.observation(step=4)
    looked["ages"] = {"step": 3.0}
    rule = {"rule": "hang", "status": "ok", "reason": "it moves", "confirm_s": 90.0}
    store.apply(RUN, [looked, write.verdict("running", findings=[rule])], age_s=1.0)
    clock.now += 1.0
    why = store.why(RUN)
    assert why is not None
    told = {row["what"]: (row["value"], row["age_s"]) for row in why["readings"]}
    assert list(told) == ["processes", "step", "step time", "log", "GPUs", "CPU", "bytes moved"]
    assert told["step"] == ("4 of 100, training", 6.0) and told["step time"][1] == 2.0
    assert told["processes"] == ("the main process lives, 0 in all", 3.0) and told["CPU"] == (None, None)
    store.apply(RUN, [write.attempt_start(2)])
    later = store.why(RUN)
    assert later is not None and later["readings"] == [], "what an earlier attempt did says nothing about this one"
