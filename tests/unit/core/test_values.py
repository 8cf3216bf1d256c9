"""Values that refuse to be wrong, notes, and a memory that survives another agent and another boot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_supervise.core import causes, incidents
from dflash_supervise.core.facts import (
    AttemptFact,
    GpusReading,
    HostReading,
    LogReading,
    Missing,
    Observation,
    ProcessesReading,
    ProgressReading,
)
from dflash_supervise.core.memory import (
    AttemptMemory,
    EndedAttempt,
    Incident,
    LaunchDecision,
    Memory,
    Restart,
    StopDecision,
    WorkerMemory,
    new_agent,
    on_this_boot,
)
from dflash_supervise.core.notes import notes
from dflash_supervise.core.policy import Policy
from dflash_supervise.core.verdicts import Finding, Status, Verdict
from dflash_supervise.core.view import View


def test_a_preset_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"policy\.preset is 'bold'; it must be one of auto, careful, observe"):
        Policy(preset="bold")


def test_a_finding_may_not_accuse_without_evidence() -> None:
    with pytest.raises(ValueError, match="rule hang is failing without evidence"):
        Finding("hang", Status.FAILING, "x", Verdict.HANG)


def test_an_unknown_cause_is_treated_as_none() -> None:
    assert causes.get("from_the_future").slug == "none"


SEEN = Observation(
    100.0,
    AttemptFact(1, 10.0),
    ProcessesReading((), True, True),
    ProgressReading("training", 9, loss=2.0),
    LogReading(True, 10),
    GpusReading((), absent="none"),
    HostReading("b", disk_free_bytes=10**12),
)


@pytest.mark.parametrize(
    ("change", "slug", "word"),
    [
        ({}, None, ""),
        ({"gpus": Missing("no answer")}, "blind: gpus", "no answer"),
        ({"gpus": GpusReading((), stuck_s=41.0)}, "blind: gpus", "41 s"),
        ({"processes": Missing("denied")}, "blind: processes", "denied"),
        ({"workspace_blind_s": 7.0}, "blind: workspace", "7 s"),
        ({"host": HostReading("b", disk_free_bytes=2**30)}, "disk_low", "1.0 GiB"),
        ({"host": HostReading("b")}, None, ""),
        ({"progress": ProgressReading("training", 9, loss=float("nan"))}, "nan_loss", "step 9"),
        ({"progress": ProgressReading("training", 9, loss=float("inf"))}, "nan_loss", "step 9"),
        ({"progress": Missing("x")}, None, ""),
        ({"log": Missing("x")}, None, ""),
    ],
)
def test_what_is_true_beside_the_verdict_is_noted(change: dict[str, object], slug: str | None, word: str) -> None:
    seen = replace(SEEN, **change)  # type: ignore[arg-type]
    memory = Memory(attempt=AttemptMemory(1, 10.0, first_step_at_s=20.0))
    found = notes(View(100.0, seen, memory, {}), Policy())
    assert [note.slug for note in found] == ([slug] if slug else [])
    assert all(word in note.reason for note in found)


FULL = Memory(
    boot_id="one",
    last_at_s=1000.0,
    watching_since_s=900.0,
    attempt=AttemptMemory(
        3, 500.0, workers=(WorkerMemory("a", 4, 990.0),), step_times=(2.0,), longest_save_s=77.0, stopped_since_s=980.0
    ),
    ended=(EndedAttempt(2, Verdict.CRASH, "segfault", "x", "f", 450.0, 100.0),),
    incidents=(Incident("2-segfault", 2, Verdict.CRASH, "segfault", "warn", "open", 450.0, "x", opened_at_s=450.0),),
    restarts=(Restart(500.0, "segfault", 3),),
    stop=StopDecision(3, "x", Verdict.HANG, "none", 995.0),
    launch=LaunchDecision(10.0),
)


@pytest.mark.parametrize(
    ("boot_id", "now_s", "by_s"),
    [("two", 50.0, -950.0), ("two", 9000.0, 8000.0), (None, 50.0, -950.0), ("one", 999.0, -1.0)],
)
def test_ages_go_on_when_the_clock_begins_anew(boot_id: str | None, now_s: float, by_s: float) -> None:
    moved = on_this_boot(FULL, boot_id, now_s)
    assert moved.boot_id == (boot_id or "one") and moved.last_at_s == moved.watching_since_s == now_s
    attempt = moved.attempt
    assert (attempt.launched_at_s, attempt.stopped_since_s) == (500.0 + by_s, 980.0 + by_s)
    assert (attempt.step_times, attempt.longest_save_s, attempt.number) == ((2.0,), 77.0, 3), "durations stay"
    assert attempt.workers[0].changed_at_s == 990.0 + by_s
    assert (moved.ended[0].ended_at_s, moved.restarts[0].at_s) == (450.0 + by_s, 500.0 + by_s)
    assert (moved.incidents[0].opened_at_s, moved.incidents[0].resolved_at_s) == (450.0 + by_s, None)
    assert moved.stop is not None and moved.stop.decided_at_s == 995.0 + by_s


@pytest.mark.parametrize(("boot_id", "now_s"), [("one", 1000.0), ("one", 5000.0), (None, 1000.5)])
def test_the_same_clock_leaves_the_memory_as_it_is(boot_id: str | None, now_s: float) -> None:
    assert on_this_boot(FULL, boot_id, now_s) == FULL
    assert on_this_boot(Memory(), "one", 5.0) == Memory(boot_id="one")


def test_a_new_agent_keeps_everything_but_the_right_to_judge_what_it_has_not_watched() -> None:
    assert new_agent(FULL, 1003.0) == replace(FULL, watching_since_s=1003.0)


def test_old_resolved_incidents_are_dropped_and_open_ones_never() -> None:
    one = Incident("x", 1, Verdict.HANG, "none", "warn", "open", 0.0, "x")
    kept: tuple[Incident, ...] = (one,)
    for index in range(120):
        kept = incidents.put(kept, replace(one, id=f"r{index}", state="resolved"))
    assert kept[0] == one and len(kept) == 1 + incidents.KEEP_RESOLVED and kept[-1].id == "r119"
