"""A workspace that takes no records mutes nobody: they are kept on the host, read on there, and go home in order."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_supervise.agent import record_writer
from dflash_supervise.agent.record_reader import RecordReader
from dflash_supervise.agent.record_writer import RecordWriter
from dflash_supervise.agent.records import encode, list_segments, next_epoch, thin, torn_tail_bytes
from tests.records import read_all
from tests.unit.agent_eyes.test_records import places, record

EPOCH = "000001-aaaa"


class Disk:
    """The workspace's file system as far as records go: bytes that it still takes. None: as many as come."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.room: int | None = None
        self._write, self._statvfs = os.write, os.statvfs

    def write(self, fd: int, data: bytes) -> int:
        if self.room is None or not os.readlink(f"/proc/self/fd/{fd}").startswith(self.folder):
            return self._write(fd, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = self._write(fd, data[: self.room])
        self.room -= done
        return done

    def statvfs(self, path: str) -> Any:
        if self.room is None:
            return self._statvfs(path)
        return SimpleNamespace(f_bavail=self.room, f_frsize=1)


@contextmanager
def disk_of(folder: str) -> Iterator[Disk]:
    disk = Disk(folder)
    with mock.patch.object(os, "write", disk.write), mock.patch.object(os, "statvfs", disk.statvfs):
        yield disk


class Bench:
    """A writer on a run directory and a spare folder, and what it was given."""

    def __init__(self, root: Path) -> None:
        self.home, self.spare = root / "w" / "run" / "records", root / "r" / "records"
        self.home.parent.mkdir(parents=True)
        self.spare.parent.mkdir()
        self.given: list[tuple[str, int]] = []
        self.begin(EPOCH)

    def begin(self, epoch: str) -> None:
        self.writer, self._seq = RecordWriter(str(self.home), str(self.spare), epoch), 0

    def write(self, count: int = 1, kind: str = "verdict") -> None:
        rows = [record(self.writer.epoch, self._seq + n, kind, text="x" * 40) for n in range(1, count + 1)]
        self._seq += count
        self.given += places(rows)
        self.writer.write([(row["kind"], encode(row)) for row in rows], sync=kind == "verdict")

    def reader(self, cursor: tuple[str, int] | None = None) -> RecordReader:
        return RecordReader(str(self.home), cursor, str(self.spare))


def rest(reader: RecordReader, limit_bytes: int = 256 * 1024) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while more := reader.read(limit_bytes):
        found += places(more)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_full_workspace_is_read_on_without_a_gap_and_gets_everything_later(bench: Bench) -> None:
    with disk_of(str(bench.home)) as disk:
        bench.write(3)
        reader = bench.reader()
        assert rest(reader) == bench.given
        disk.room = 150
        bench.write(3)
        assert "No space" in bench.writer.trouble
        bench.write()
        assert rest(reader) == bench.given[3:], "told from the host, once"
        assert rest(bench.reader((EPOCH, 5))) == bench.given[5:], "also to one who comes meanwhile"
        assert len(list_segments(str(bench.spare))) == 1, "one file, however often it was tried to bring it home"
        disk.room = None
        bench.write()
        assert bench.writer.trouble == ""
    assert rest(reader) == bench.given[7:]
    assert places(read_all(str(bench.home))) == bench.given
    assert list_segments(str(bench.spare)) == []


def test_a_deleted_run_directory_is_not_made_again_and_loses_nobody_a_record(bench: Bench) -> None:
    bench.write(3)
    reader = bench.reader()
    assert places(reader.read()) == bench.given
    bench.write(2)
    shutil.rmtree(bench.home.parent)
    bench.write(2)
    assert bench.writer.trouble and not bench.home.parent.exists()
    assert rest(reader) == bench.given[3:], "also what the deleted folder had taken last"
    bench.home.parent.mkdir()
    bench.write()
    assert bench.writer.trouble == "" and places(read_all(str(bench.home))) == bench.given


def test_a_workspace_that_answers_with_errors_stops_only_who_has_not_read_it_to_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write(3)
    reader = bench.reader()
    assert rest(reader) == bench.given
    real = os.listdir

    def stale(path: str) -> list[str]:
        if path == str(bench.home):
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path)

    bench.home.rename(bench.home.with_name("away"))
    bench.home.touch()
    bench.write(2)
    monkeypatch.setattr(os, "listdir", stale)
    assert rest(reader) == bench.given[3:]
    late = bench.reader()
    with pytest.raises(OSError, match="Stale"):
        late.read()
    monkeypatch.undo()
    bench.home.unlink()
    bench.home.with_name("away").rename(bench.home)
    bench.write()
    assert rest(late) == bench.given
    assert rest(reader) == bench.given[5:]


def put_file(home: Path) -> None:
    home.touch()


def put_link_to_file(home: Path) -> None:
    home.with_name("file").touch()
    home.symlink_to("file")


def put_link_to_nothing(home: Path) -> None:
    home.symlink_to("nowhere")


def put_link_to_itself(home: Path) -> None:
    home.symlink_to(home.name)


@pytest.mark.parametrize("put", [put_file, put_link_to_file, put_link_to_nothing, put_link_to_itself])
def test_something_else_in_the_place_of_the_records_mutes_nobody(bench: Bench, put: Callable[[Path], None]) -> None:
    bench.write(3)
    reader, behind = bench.reader(), bench.reader()
    assert rest(reader) == bench.given
    assert places(behind.read(150)) == bench.given[:1]
    bench.home.rename(bench.home.with_name("away"))
    put(bench.home)
    bench.write(2)
    assert rest(reader) == bench.given[3:]
    assert rest(behind) == bench.given[1:] and rest(bench.reader()) == bench.given
    assert next_epoch(str(bench.home), str(bench.spare))[:6] == "000002" and torn_tail_bytes(str(bench.home)) == 0
    with pytest.raises(OSError) if put is not put_link_to_nothing else nullcontext():
        RecordReader(str(bench.home)).read()  # where nothing else is kept, an error stays one
    bench.home.unlink()
    bench.home.with_name("away").rename(bench.home)
    bench.write()
    assert rest(reader) == bench.given[5:]
    assert places(read_all(str(bench.home)))[-3:] == bench.given[3:]


def test_lines_that_are_no_records_stop_no_reader(bench: Bench) -> None:
    bench.write(2)
    (bench.home / "000002-aaaa.0001.jsonl").write_bytes(
        b"[" * 200_000 + b"\n" + b'{"epoch":"000002-aaaa","seq":1e400}\n' + b"5\n[]\n"
    )
    bench.given += [("000003-aaaa", 1)]
    (bench.home / "000003-aaaa.0001.jsonl").write_bytes(b'{"epoch":"000003-aaaa","seq":1}\n')
    assert rest(bench.reader()) == bench.given
    assert rest(bench.reader((EPOCH, 2))) == bench.given[2:]
    assert rest(bench.reader(("000002-aaaa", 1))) == bench.given[2:]
    assert thin(str(bench.home / "000002-aaaa.0001.jsonl")) < 100


def test_a_run_directory_that_was_moved_away_is_as_good_as_deleted(bench: Bench) -> None:
    bench.write(2)
    bench.home.parent.rename(bench.home.parent.with_name("moved"))
    bench.write()
    assert rest(bench.reader()) == bench.given


def test_a_later_agent_brings_home_what_an_earlier_one_had_to_keep(bench: Bench) -> None:
    with disk_of(str(bench.home)) as disk:
        bench.write(2)
        disk.room = 0
        bench.write(2)
        reader = bench.reader()
        assert rest(reader) == bench.given
        bench.begin(next_epoch(str(bench.home), str(bench.spare)))
        bench.write(2)
        disk.room = None
        bench.begin(next_epoch(str(bench.home), str(bench.spare)))
        bench.write(2)
    assert [epoch[:6] for epoch, _ in bench.given] == ["000001"] * 4 + ["000002"] * 2 + ["000003"] * 2
    assert places(read_all(str(bench.home))) == bench.given
    assert rest(reader) == bench.given[4:]


@pytest.mark.parametrize("before", ["zzz", "", "zzzzzz-abcd", "\u00b2" * 6])
def test_an_epoch_that_is_none_counts_for_nothing(tmp_path: Path, before: str) -> None:
    assert next_epoch(str(tmp_path / "gone"), before=before)[:6] == "000001"


def test_epochs_go_on_rising_when_nothing_of_the_earlier_ones_is_left(tmp_path: Path) -> None:
    assert next_epoch(str(tmp_path / "gone"), str(tmp_path / "gone too"), before="000007-abcd")[:6] == "000008"


def test_where_neither_place_takes_records_they_wait_in_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "PENDING_BYTES", 500)
    bench.write()
    shutil.rmtree(bench.home.parent)
    shutil.rmtree(bench.spare.parent)
    for _ in range(10):
        with pytest.raises(FileNotFoundError):
            bench.write(kind="observation")
    with pytest.raises(FileNotFoundError):
        bench.write()
    bench.spare.parent.mkdir()
    bench.write()
    found = rest(bench.reader())
    assert found == sorted(set(found)) and {bench.given[0], *bench.given[-2:]} <= set(found)
    assert len(found) < len(bench.given), "observations beyond the limit were dropped, decisions were not"


def test_what_is_kept_for_long_loses_its_old_observations_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "SPARE_SEGMENT_BYTES", 2000)
    monkeypatch.setattr(record_writer, "SPARE_BYTES", 6000)
    bench.begin(EPOCH)
    with disk_of(str(bench.home)) as disk:
        disk.room = 0
        for _ in range(30):
            bench.write(9, "observation")
            bench.write()
        kept = sum(os.path.getsize(segment.path) for segment in list_segments(str(bench.spare)))
        assert kept < 12_000
        disk.room = None
        bench.write()
    found = places(read_all(str(bench.home)))
    assert [key for key in bench.given if key[1] % 10 == 0] == [key for key in found if key[1] % 10 == 0]
    assert len(found) < 150


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_readers_get_every_record_once_and_in_order_however_the_workspace_behaves(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    bench = Bench(tmp_path_factory.mktemp("run"))
    readers: list[tuple[RecordReader, list[tuple[str, int]]]] = [(bench.reader(), [])]
    with disk_of(str(bench.home)) as disk:
        for _ in range(data.draw(st.integers(1, 25))):
            match data.draw(st.sampled_from(["write", "write", "read", "full", "room", "join", "replace"])):
                case "write":
                    bench.write(data.draw(st.integers(1, 6)), data.draw(st.sampled_from(["verdict", "observation"])))
                case "read":
                    reader, found = data.draw(st.sampled_from(readers))
                    found += places(reader.read(data.draw(st.integers(1, 600))))
                case "full":
                    disk.room = data.draw(st.integers(0, 400))
                case "room":
                    disk.room = None
                case "join":
                    cut = data.draw(st.integers(0, len(bench.given)))
                    cursor = bench.given[cut - 1] if cut else None
                    readers.append((bench.reader(cursor), bench.given[:cut]))
                case "replace":
                    bench.begin(next_epoch(str(bench.home), str(bench.spare)))
        for reader, found in readers:
            assert found + rest(reader, data.draw(st.integers(1, 600))) == bench.given
        disk.room = None
        bench.write()
    assert places(read_all(str(bench.home))) == bench.given
