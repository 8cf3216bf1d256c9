"""The log is fed once and in order, whatever happens to its file."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_supervise.agent import logtail
from dflash_supervise.agent.logtail import LogTail
from dflash_supervise.core.facts import LogReading, Missing
from dflash_supervise.core.logscan import LogScanner

TEXT = (
    b"[dflash] run=r attempt=1 started=x argv=y\nstep=1 loss=2.0\rstep=2 loss=1.5\n"
    b'Traceback (most recent call last):\n  File "t.py", line 3, in f\nRuntimeError: dry\nstep=3 loss=1.0\nno end'
)


def read(tail: LogTail) -> LogReading:
    found = tail.look()
    assert isinstance(found, LogReading), found
    return found


def test_a_log_that_is_not_there_yet_says_so_and_is_found_later(tmp_path: Path) -> None:
    tail = LogTail(str(tmp_path / "train.log"))
    assert read(tail) == LogReading(exists=False)
    (tmp_path / "train.log").write_bytes(b"[dflash] run=r\n")
    found = read(tail)
    assert (found.exists, found.size_bytes, found.body_bytes) == (True, 15, 0)


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=12), chunk=st.integers(1, 200))
def test_any_chunking_gives_the_same_reading(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "train.log"
    whole = LogScanner()
    whole.feed(TEXT)
    tail, at = LogTail(str(path)), 0
    original, logtail.CHUNK_BYTES = logtail.CHUNK_BYTES, chunk
    try:
        with open(path, "ab", buffering=0) as file:
            for cut in [*sorted(cuts), len(TEXT)]:
                file.write(TEXT[at:cut])
                at = max(at, cut)
                tail.look()
        assert read(tail) == whole.reading(exists=True, size_bytes=len(TEXT))
    finally:
        logtail.CHUNK_BYTES = original


def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"step=1 loss=1\n")
    tail = LogTail(str(path))
    read(tail)
    with open(path, "ab") as late:
        path.rename(tmp_path / "train.log.1")
        assert read(tail).step == 1
        late.write(b"step=2 loss=1\nhalf a line")
        late.flush()
        path.write_bytes(b"step=3 loss=1\n")
        found = read(tail)
    assert found.step == 3
    assert found.tail == ("step=1 loss=1", "step=2 loss=1", "half a line", "step=3 loss=1")
    assert tail.rotations == 1


def test_a_truncated_log_is_read_from_its_new_beginning(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"step=1 loss=1\nstep=2 loss=1\ncut he")
    tail = LogTail(str(path))
    read(tail)
    os.truncate(path, 0)
    with open(path, "ab") as file:
        file.write(b"step=9 loss=1\n")
    found = read(tail)
    assert (found.step, tail.truncations) == (9, 1)
    assert found.tail[-2:] == ("cut he", "step=9 loss=1")


def test_a_large_log_is_unknown_until_it_was_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"step=1 loss=1\n" * 1000)
    ticks = iter(float(n) for n in range(1000))
    monkeypatch.setattr(logtail, "time", SimpleNamespace(monotonic=lambda: next(ticks) * 0.1))
    monkeypatch.setattr(logtail, "CHUNK_BYTES", 5000)
    tail = LogTail(str(path))
    first = tail.look()
    assert isinstance(first, Missing) and "of 14000 bytes" in first.reason
    assert tail.behind_bytes > 0
    while isinstance(tail.look(), Missing):
        assert tail.behind_bytes > 0
    assert read(tail).size_bytes == 14000


def test_a_log_that_is_no_file_is_unknown_and_never_opened_for_long(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.log")
    assert LogTail(str(tmp_path / "train.log")).look() == Missing("the log is not a regular file")
