"""What is written down: changes at once, moving numbers rarely, nothing twice at the same time."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_supervise.agent.brain_state import load, save
from dflash_supervise.agent.journal import Journal, Told, incident_records, observation_payload, verdict_record
from dflash_supervise.agent.record_writer import RecordWriter
from dflash_supervise.core.assessment import Assessment
from dflash_supervise.core.facts import (
    AttemptFact,
    GpuHolder,
    GpuReading,
    GpusReading,
    LogReading,
    Missing,
    Observation,
)
from dflash_supervise.core.memory import Incident, Memory
from dflash_supervise.core.verdicts import Note, Verdict
from tests.records import read_all

MISSING = Missing("not asked")


def running(step: int) -> Assessment:
    return Assessment(1, Verdict.RUNNING, "none", f"step {step}, training", phase="training")


def test_a_running_attempt_is_told_once_and_again_only_after_half_a_minute() -> None:
    told, first = verdict_record(Told(), running(1), 100.0)
    assert first is not None and first["since_s"] == 100.0
    told, none = verdict_record(told, running(2), 101.0)
    assert none is None
    told, again = verdict_record(told, running(31), 131.0)
    assert again is not None and (again["sentence"], again["since_s"]) == ("step 31, training", 100.0)


def test_a_new_note_or_a_new_verdict_is_told_at_once() -> None:
    told, _ = verdict_record(Told(), running(1), 100.0)
    told, noted = verdict_record(told, replace(running(2), notes=(Note("disk_low", "1 GiB"),)), 101.0)
    assert noted is not None and noted["notes"] == [{"slug": "disk_low", "reason": "1 GiB"}]
    hang = Assessment(1, Verdict.HANG, "none", "no step for 31 s", suspected=True)
    told, suspected = verdict_record(told, hang, 102.0)
    assert suspected is not None and suspected["since_s"] == 102.0
    told, same = verdict_record(told, replace(hang, sentence="no step for 32 s"), 103.0)
    assert same is None


def test_a_pending_incident_is_told_rarely_and_its_opening_at_once() -> None:
    one = Incident("1-hang", 1, Verdict.HANG, "none", "warn", "pending", 5.0, "no step for 31 s")
    told, first = incident_records(Told(), (one,), 100.0)
    told, second = incident_records(told, (replace(one, sentence="no step for 32 s"),), 101.0)
    told, opened = incident_records(told, (replace(one, state="open"),), 102.0)
    assert [len(first), len(second), len(opened)] == [1, 0, 1]


def test_the_logs_text_is_told_only_when_it_changed() -> None:
    log = LogReading(exists=True, size_bytes=9, tail=("a", "b"))
    seen = Observation(1.0, AttemptFact(1), MISSING, MISSING, log, MISSING, MISSING)
    told, first = observation_payload(Told(), seen)
    told, second = observation_payload(told, seen)
    assert first["obs"]["log"]["tail"] == ["a", "b"]
    assert "tail" not in second["obs"]["log"]


def test_a_gpu_that_somebody_else_uses_has_its_work_class_too() -> None:
    theirs, ours = (GpuHolder(pid, 2**30, ours=pid == 8) for pid in (7, 8))
    spins = GpuReading("GPU-a", 0, "", 100.0, 0.0, 2**30, 2**37, 119.0, 700.0, holders=(theirs,))
    works = GpuReading("GPU-b", 1, "", 100.0, 25.0, 2**30, 2**37, 690.0, 700.0, holders=(ours,))
    seen = Observation(1.0, AttemptFact(1), MISSING, MISSING, MISSING, GpusReading((spins, works)), MISSING)
    assert observation_payload(Told(), seen)[1]["gpu_class"] == {"GPU-a": "spinning", "GPU-b": "working"}


def test_a_batch_that_hangs_is_not_joined_by_another_and_nothing_is_lost(tmp_path: Path) -> None:
    gate, entered = threading.Event(), threading.Event()

    class Slow(RecordWriter):
        def write(self, lines: list[tuple[str, bytes]], sync: bool) -> None:
            entered.set()
            assert gate.wait(30)
            super().write(lines, sync)

    journal = Journal(str(tmp_path), "r", Slow(str(tmp_path / "records"), str(tmp_path / "spare"), "000001-aaaa"))
    journal.add(1.0, "verdict", n=1)
    assert not journal.flush(None, durable=True, wait_s=0.0)
    assert entered.wait(30)
    journal.add(2.0, "verdict", n=2)
    assert not journal.flush(None, durable=True, wait_s=0.0)
    gate.set()
    assert journal.flush(None, durable=True, wait_s=30.0)
    assert [row["n"] for row in read_all(str(tmp_path / "records"))] == [1, 2]


def test_a_workspace_that_refuses_makes_a_decision_not_durable(tmp_path: Path) -> None:
    (tmp_path / "records").write_text("in the way")
    writer = RecordWriter(str(tmp_path / "records"), str(tmp_path / "spare"), "000001-aaaa")
    journal = Journal(str(tmp_path), "r", writer)
    journal.add(1.0, "action", type="Launch")
    assert not journal.flush(None, durable=True, wait_s=30.0)
    assert "kept on the host" in journal.trouble and "Not a directory" in journal.trouble
    assert [row["kind"] for row in read_all(str(tmp_path / "spare"))] == ["action"]
    (tmp_path / "records").unlink()
    journal.add(2.0, "note", text="back")
    assert journal.flush(None, durable=True, wait_s=30.0)
    assert [row["kind"] for row in read_all(str(tmp_path / "records"))] == ["action", "note"]


def test_the_memory_lies_on_the_host_while_the_run_directory_takes_none_and_the_newer_copy_counts(
    tmp_path: Path,
) -> None:
    home, spare = tmp_path / "run", tmp_path / "spare"
    spare.mkdir()

    def saved(step: int) -> Memory:
        memory = replace(Memory(), best_step=step)
        save(str(home), memory, durable=True, spare=str(spare), after=("000001-aaaa", step))
        return memory

    with pytest.raises(FileNotFoundError):
        saved(1)
    assert load(str(home), str(spare)).memory.best_step == 1
    home.mkdir()
    second = saved(2)
    assert load(str(home), str(spare)).memory == second
    home.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        saved(3)
    (tmp_path / "away").rename(home)
    assert load(str(home), str(spare)).memory.best_step == 3


def test_the_memory_comes_back_as_it_was_and_a_broken_one_is_named(tmp_path: Path) -> None:
    memory = replace(Memory(), best_step=70, given_up="x", final=Verdict.CRASH, remedies=("another_port",))
    save(str(tmp_path), memory, durable=True)
    assert load(str(tmp_path)).memory == memory
    (tmp_path / "brain.json").write_text("{")
    found = load(str(tmp_path))
    assert found.memory == Memory() and found.lost is not None
