"""The database file: private, migrated by number, whole after a kill -9. The log files: head, tail and gaps."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from dflash_supervise.store import LogFiles, Store
from dflash_supervise.store.logs import LogPart, Piece
from tests.unit.store.writing import RUN, Writer, open_store, told


def test_the_database_is_private_and_a_second_opening_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "store.sqlite3"
    Store(f"sqlite:///{path}").close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with create_engine(f"sqlite:///{path}").connect() as connection:
        before = connection.execute(text("select name, sql from sqlite_master order by name")).all()
    Store(f"sqlite:///{path}").close()
    with create_engine(f"sqlite:///{path}").connect() as connection:
        assert connection.execute(text("select name, sql from sqlite_master order by name")).all() == before
        assert connection.execute(text("pragma journal_mode")).scalar() == "wal"


def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.sqlite3'}"
    Store(url).close()
    with create_engine(url).begin() as connection:
        connection.execute(text("update meta set value = '99' where key = 'schema'"))
    with pytest.raises(ValueError, match="schema 99"):
        Store(url)


def test_another_kind_of_database_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="postgresql is not supported yet"):
        Store("postgresql://host/db")


_WRITER = """
import sys
from pathlib import Path
from dflash_supervise.store import apply
from tests.unit.store.writing import RUN, Writer, open_store
store, write = open_store(Path(sys.argv[1])), Writer()
write.attempt_start(1)
for n in range(400):
    write.verdict("running", phase=str(n))
    write.incident("crash", "segfault", attempt=n)
print("ready", flush=True)
at = 0
while at < len(write.written):
    store.apply(RUN, write.written[at : at + 40])
    at += 40
"""


@pytest.mark.parametrize("after_records", [1, 60, 200])
def test_kill_9_in_the_middle_of_apply_loses_and_doubles_nothing(tmp_path: Path, after_records: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    child = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=environment)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    look = create_engine(f"sqlite:///{tmp_path / 'store.sqlite3'}")
    with look.connect() as connection:
        while (connection.execute(text("select count(*) from records")).scalar() or 0) < after_records:
            connection.rollback()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    store, write = Store(f"sqlite:///{tmp_path / 'store.sqlite3'}"), Writer()
    write.attempt_start(1)
    for n in range(400):
        write.verdict("running", phase=str(n))
        write.incident("crash", "segfault", attempt=n)
    cursor = store.cursor(RUN)
    assert cursor is not None and cursor["seq"] % 40 == 0, "a batch is there whole or not at all"
    known = len(store.records(RUN, limit=5000))
    assert known == cursor["seq"] < len(write.written)
    # A message for each crash of the stored batches and for none beside them.
    assert len(store.messages(limit=5000)) == 1 + sum(r["kind"] == "incident" for r in write.written[: cursor["seq"]])
    store.apply(RUN, write.written[max(0, known - 100) :])
    assert [r["seq"] for r in store.records(RUN, limit=5000)] == list(range(1, 802))
    assert len(told(store)) == 100 and len(store.messages(limit=5000)) == 401


def logs(tmp_path: Path) -> LogFiles:
    return LogFiles(tmp_path, head_bytes=10, tail_bytes=20, piece_bytes=5)


def test_log_bytes_come_back_as_they_went_in_and_doubles_are_dropped(tmp_path: Path) -> None:
    files = logs(tmp_path)
    files.append("r", 1, 0, b"0123456")
    files.append("r", 1, 3, b"3456789ab")
    files.append("r", 1, 0, b"01")
    assert files.read("r", 1, 0, 100) == LogPart(0, 12, 12, b"0123456789ab")
    assert files.read("r", 1, 4, 3) == LogPart(4, 7, 12, b"456")
    assert files.read("r", 1, None, 3) == LogPart(9, 12, 12, b"9ab")
    assert files.read("r", 1, 99, 3) == LogPart(12, 12, 12, b""), "beyond the end is the end"
    assert files.read("r", 2, 5, 3) == LogPart(0, 0, 0, b"")
    assert files.size("r", 1) == 12
    assert (files.newest_attempt("r"), files.newest_attempt("other")) == (1, None)


def test_the_head_and_the_tail_stay_and_the_gap_is_one_line(tmp_path: Path) -> None:
    files = logs(tmp_path)
    data = bytes(range(48, 48 + 70))
    for offset in range(0, 70, 7):
        files.append("r", 1, offset, data[offset : offset + 7])
    shown = files.read("r", 1, 0, 1000)
    assert shown.data == data[:10] + b"\n[dflash] 40 bytes are not kept here\n" + data[50:]
    assert (shown.offset, shown.next, shown.size) == (0, 70, 70)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 30


def test_bytes_that_never_came_are_a_gap_too(tmp_path: Path) -> None:
    files = logs(tmp_path)
    files.append("r", 1, 0, b"abc\n")
    files.append("r", 1, 8, b"xyz")
    assert files.read("r", 1, 0, 100).data == b"abc\n[dflash] 4 bytes are not kept here\nxyz"


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        (0, LogPart(20, 20, 20, b"")),
        (1, LogPart(17, 20, 20, b"z\x0by")),
        (2, LogPart(12, 20, 20, b"xy\rx\nz\x0by")),
        (3, LogPart(4, 20, 20, b"def\n[dflash] 5 bytes are not kept here\nxy\rx\nz\x0by")),
        (9, LogPart(0, 20, 20, b"abc\ndef\n[dflash] 5 bytes are not kept here\nxy\rx\nz\x0by")),
    ],
)
def test_the_last_lines_are_cut_at_line_feeds_and_begin_at_a_byte_of_the_log(
    tmp_path: Path, lines: int, want: LogPart
) -> None:
    files = logs(tmp_path)
    files.append("r", 1, 0, b"abc\ndef")
    files.append("r", 1, 12, b"xy\rx\nz\x0by")
    assert files.read("r", 1, None, 1000, lines=lines) == want


def test_a_log_that_grows_while_it_is_read_is_told_as_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.append_log(RUN, 1, 0, b"one\n")
    listed = LogFiles._pieces

    def grown(self: LogFiles, folder: Path) -> list[Piece]:
        found = listed(self, folder)
        with found[0].path.open("ab") as file:
            file.write(b"more\n")
        return found

    monkeypatch.setattr(LogFiles, "_pieces", grown)
    first = store.log(RUN, tail=5)
    assert first == {"attempt": 1, "offset": 0, "next": 4, "size": 4, "text": "one\n"}
    assert store.log(RUN, offset=4) == {"attempt": 1, "offset": 4, "next": 9, "size": 9, "text": "more\n"}


def test_a_character_that_came_in_two_halves_is_read_whole(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    whole = "n\u00e9\u20ac\n".encode()
    shown, at = "", 0
    for cut in range(1, len(whole) + 1):
        store.append_log(RUN, 1, 0, whole[:cut])
        part = store.log(RUN, offset=at)
        assert part is not None and part["size"] == cut
        shown, at = shown + part["text"], part["next"]
    assert (shown, at) == ("n\u00e9\u20ac\n", len(whole))
    tiny = store.log(RUN, offset=1, limit=1)
    assert tiny is not None and (tiny["text"], tiny["next"]) == ("\ufffd", 2), "a limit below a character moves on"


def test_a_log_is_read_by_offset_by_tail_and_by_attempt(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.log(RUN) is None and store.log_cursor(RUN) is None
    store.append_log(RUN, 1, 0, b"first\n")
    store.append_log(RUN, 2, 0, b"one\ntwo\nthr\xffee\n")
    newest = store.log(RUN, tail=2)
    assert newest is not None and newest["text"] == "two\nthr\ufffdee\n" and newest["offset"] == 4
    assert store.log(RUN, attempt=1) == {"attempt": 1, "offset": 0, "next": 6, "size": 6, "text": "first\n"}
    middle = store.log(RUN, offset=4, limit=3)
    assert middle is not None and (middle["text"], middle["next"]) == ("two", 7)
    assert store.log_cursor(RUN) == {"attempt": 2, "offset": 15}
