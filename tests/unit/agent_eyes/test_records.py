"""Records on disk: order, torn tails, epochs, room, and reading on from a cursor."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_supervise.agent import records
from dflash_supervise.agent.record_reader import RecordReader
from dflash_supervise.agent.records import SegmentWriter, encode, list_segments, next_epoch, torn_tail_bytes
from tests.records import read_all


def record(epoch: str, seq: int, kind: str = "observation", **more: Any) -> dict[str, Any]:
    return {"v": 1, "run": "r", "epoch": epoch, "seq": seq, "kind": kind, **more}


def write(writer: SegmentWriter, *rows: dict[str, Any], sync: bool = False) -> None:
    writer.append([encode(row) for row in rows], sync)


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["epoch"], row["seq"]) for row in rows]


def test_each_agent_has_a_later_epoch_and_readers_see_all_in_order(tmp_path: Path) -> None:
    folder = str(tmp_path / "records")
    epochs = []
    for _ in range(3):
        epochs.append(next_epoch(folder))
        writer = SegmentWriter(folder, epochs[-1])
        write(writer, record(epochs[-1], 1), record(epochs[-1], 2, "verdict"), sync=True)
        writer.close()
    assert [epoch[:6] for epoch in epochs] == ["000001", "000002", "000003"]
    assert places(read_all(folder)) == [(epoch, seq) for epoch in epochs for seq in (1, 2)]


def test_segments_rotate_and_nothing_is_lost_between_them(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path), "000001-aaaa", segment_bytes=300)
    for seq in range(1, 21):
        write(writer, record("000001-aaaa", seq, text="x" * 50))
    assert len(list_segments(str(tmp_path))) > 3
    assert [seq for _, seq in places(read_all(str(tmp_path)))] == list(range(1, 21))


def test_old_segments_lose_their_observations_and_keep_their_verdicts(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path), "000001-aaaa", segment_bytes=2000, total_bytes=6000)
    for seq in range(1, 201):
        write(writer, record("000001-aaaa", seq, "verdict" if seq % 10 == 0 else "observation", text="x" * 60))
    rows = read_all(str(tmp_path))
    assert [row["seq"] for row in rows if row["kind"] == "verdict"] == list(range(10, 201, 10))
    assert len([row for row in rows if row["kind"] == "observation"]) < 100
    assert sum(os.path.getsize(segment.path) for segment in list_segments(str(tmp_path))) < 9000


def test_a_torn_tail_is_dropped_by_readers_and_named_to_the_next_agent(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path), "000001-aaaa")
    write(writer, record("000001-aaaa", 1))
    with open(list_segments(str(tmp_path))[0].path, "ab") as file:
        file.write(b'{"v":1,"run":"r","ep')
    assert torn_tail_bytes(str(tmp_path)) == 20
    later = SegmentWriter(str(tmp_path), next_epoch(str(tmp_path)))
    write(later, record(later.epoch, 1))
    assert places(read_all(str(tmp_path))) == [("000001-aaaa", 1), (later.epoch, 1)]


def test_a_half_written_line_is_waited_for_and_then_told_once(tmp_path: Path) -> None:
    line = encode(record("000001-aaaa", 1))
    path = tmp_path / "000001-aaaa.0001.jsonl"
    path.write_bytes(line[:10])
    reader = RecordReader(str(tmp_path))
    assert reader.read() == []
    path.write_bytes(line)
    assert places(reader.read()) == [("000001-aaaa", 1)]
    assert reader.read() == []


def test_a_full_disk_takes_a_batch_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(str(tmp_path), "000001-aaaa")
    write(writer, record("000001-aaaa", 1))
    reader = RecordReader(str(tmp_path))
    real, room = os.write, [100]

    def full(fd: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = real(fd, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        write(writer, record("000001-aaaa", 2, "verdict"), record("000001-aaaa", 3, "verdict"))
    monkeypatch.setattr(os, "write", real)
    assert places(reader.read()) == [("000001-aaaa", 1)]
    for seq in (2, 3, 4):
        write(writer, record("000001-aaaa", seq))
    found = places(reader.read())
    while more := reader.read():
        found += places(more)
    assert [seq for _, seq in found] == [2, 3, 4]
    assert [seq for _, seq in places(read_all(str(tmp_path)))] == [1, 2, 3, 4]


def test_a_record_too_large_for_the_stream_is_cut_and_says_so() -> None:
    obs = {"at_s": 1.0, "log": {"tail": ["x" * 300_000]}}
    cut = json.loads(encode(record("000001-aaaa", 7, obs=obs)))
    assert (cut["seq"], cut["obs"]) == (7, {"at_s": 1.0})
    note = json.loads(encode(record("000001-aaaa", 8, "incident", evidence="x" * 300_000)))
    assert (note["seq"], note["kind"]) == (8, "note")


def test_numbers_that_json_does_not_have_become_unknown() -> None:
    row = json.loads(encode(record("000001-aaaa", 1, obs={"loss": float("nan"), "more": [float("inf"), 1.5]})))
    assert row["obs"] == {"loss": None, "more": [None, 1.5]}


def test_a_cursor_of_an_unknown_epoch_reads_everything(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path), "000001-aaaa")
    write(writer, record("000001-aaaa", 1), record("000001-aaaa", 2))
    rows = RecordReader(str(tmp_path), ("000009-ffff", 500)).read()
    assert [row["seq"] for row in rows] == [1, 2]


def test_a_segment_that_is_thinned_under_a_reader_is_told_on_without_doubling(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path), "000001-aaaa")
    write(writer, *[record("000001-aaaa", seq, "verdict" if seq % 2 else "observation") for seq in range(1, 11)])
    reader = RecordReader(str(tmp_path), ("000001-aaaa", 4))
    assert [seq for _, seq in places(reader.read())] == [5, 6, 7, 8, 9, 10]
    records.thin(list_segments(str(tmp_path))[0].path)
    later = SegmentWriter(str(tmp_path), "000002-bbbb")
    write(later, record("000002-bbbb", 1))
    assert places(reader.read()) == [("000002-bbbb", 1)]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_reading_on_from_any_cursor_is_without_loss_or_doubling(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = str(tmp_path_factory.mktemp("records"))
    rows = []
    for number in range(data.draw(st.integers(1, 3))):
        epoch = f"{number + 1:06d}-{number:04x}"
        writer = SegmentWriter(folder, epoch, segment_bytes=data.draw(st.integers(60, 600)))
        for seq in range(1, data.draw(st.integers(1, 25)) + 1):
            rows.append(record(epoch, seq, text="y" * data.draw(st.integers(0, 40))))
            write(writer, rows[-1])
    cut = data.draw(st.integers(0, len(rows)))
    cursor = (rows[cut - 1]["epoch"], rows[cut - 1]["seq"]) if cut else None
    reader = RecordReader(folder, cursor)
    found: list[dict[str, Any]] = []
    while more := reader.read(limit_bytes=data.draw(st.integers(1, 400))):
        found.extend(more)
    assert places(found) == places(rows[cut:])
