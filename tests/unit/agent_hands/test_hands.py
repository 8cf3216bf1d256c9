"""Stack dumps, redaction, the runtime folder, and the order of a stop, without other processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_supervise.agent import stop
from dflash_supervise.agent.blackbox import redact
from dflash_supervise.agent.runtime import (
    Runtime,
    UnsafeFolder,
    check_folder,
    lock_held,
    lock_owner,
    read_json,
    runtime_root,
    take_lock,
    workspace_lock_name,
    write_json,
)
from dflash_supervise.agent.stacks import digest, newest_dump, parse, summary
from dflash_supervise.core.facts import Missing, ProcessesReading, ProcessFact

DUMP = """\
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/queue.py", line 171 in get
  File "/ws/train.py", line {line} in worker
  File "/usr/lib/python3.11/threading.py", line 1045 in _bootstrap_inner

Thread 0x00007f02 [drafter 1] (most recent call first):
  Garbage-collecting
  File "/ws/train.py", line 40 in step

Thread 0x00007f03 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f00 (most recent call first):
  File "/ws/train.py", line 90 in main
  File "/ws/train.py", line 99 in <module>
"""


def test_the_newest_of_several_dumps_is_cut_out() -> None:
    assert newest_dump(DUMP.format(line=10) + DUMP.format(line=11)) == DUMP.format(line=11)
    assert newest_dump(DUMP.format(line=10)) == DUMP.format(line=10)
    assert newest_dump("") == "" and newest_dump("no dump at all\n") == ""


def test_equal_places_have_equal_digests_and_waiting_code_does_not_count() -> None:
    first = parse(DUMP.format(line=10))
    assert digest(first) == digest(parse(DUMP.format(line=10).replace("line 327", "line 331")))
    assert digest(first) == digest(tuple(reversed(first)))
    assert digest(first) != digest(parse(DUMP.format(line=11)))


def test_the_summary_names_each_thread_by_its_innermost_frame_of_ours() -> None:
    assert summary(parse(DUMP.format(line=10))) == (
        "thread 1: worker (train.py:10)",
        "thread drafter 1: step (train.py:40)",
        "thread 3: wait (threading.py:327)",
        "thread 4: main (train.py:90)",
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("HF_TOKEN=abc step=3", "HF_TOKEN=*** step=3"),
        ('{"api_key": "abc", "lr": 1}', '{"api_key": *** "lr": 1}'),
        ("Authorization: Bearer abcdefgh.ijkl", "Authorization: Bearer ***"),
        ("https://user:pw@host/x", "https://user:***@host/x"),
        ("key hf_abcdefghijklmnop used", "key *** used"),
        ("tok/s=812 tokens=900 loss=1.5", "tok/s=812 tokens=900 loss=1.5"),
    ],
)
def test_secrets_are_blotted_out_and_metrics_are_not(text: str, want: str) -> None:
    assert redact(text).replace('***"', "***").replace("***,", "***") == want


# ---------------------------------------------------------------- the runtime folder


def test_the_runtime_folder_is_private_and_a_foreign_or_open_one_is_refused(tmp_path: Path) -> None:
    runtime = Runtime.open({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert runtime.root == str(tmp_path / "dflash")
    assert [p.stat().st_mode & 0o777 for p in (tmp_path / "dflash", Path(runtime.run("run-a")))] == [0o700, 0o700]
    os.chmod(runtime.root, 0o750)
    with pytest.raises(UnsafeFolder, match="mode 0750"):
        Runtime.open({"XDG_RUNTIME_DIR": str(tmp_path)})
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "dflash").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFolder, match="link"):
        Runtime.open({"XDG_RUNTIME_DIR": str(tmp_path / "link")})


def test_a_workspace_folder_may_be_read_by_others_but_not_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    check_folder(str(tmp_path), private=False)
    with pytest.raises(UnsafeFolder):
        check_folder(str(tmp_path), private=True)
    tmp_path.chmod(0o775)
    with pytest.raises(UnsafeFolder) as refused:
        check_folder(str(tmp_path), private=False)
    assert "chmod go-w" in refused.value.fix


def test_a_relative_runtime_variable_is_not_believed() -> None:
    assert os.path.isabs(runtime_root({"XDG_RUNTIME_DIR": "run"}))


def test_a_lock_has_one_owner_who_is_named_and_sees_its_file_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "x.lock")
    assert lock_held(path) is False
    lock = take_lock(path, {"run": "run-a", "attempt": 1})
    assert lock is not None and lock_held(path) is True and lock.in_place()
    assert take_lock(path, {}) is None and lock_owner(path) == {"run": "run-a", "attempt": 1}
    os.unlink(path)
    assert not lock.in_place()
    lock.release()
    again = take_lock(path, {"run": "run-b"})
    assert again is not None and lock_owner(path) == {"run": "run-b"}
    again.release()


def test_one_workspace_has_one_lock_by_whatever_path_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "ws")
    assert workspace_lock_name(str(tmp_path / "alias")) == workspace_lock_name(str(tmp_path / "ws" / ".." / "ws"))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(str(path), {"a": 1})
    with pytest.raises(TypeError):
        write_json(str(path), {"a": object()})
    assert read_json(str(path)) == {"a": 1} and [p.name for p in tmp_path.iterdir()] == ["x.json"]
    path.write_text("[1]")
    assert read_json(str(path)) is None and read_json(str(tmp_path / "absent")) is None


# ---------------------------------------------------------------- the order of a stop


def member(pid: int, via: str = "tree") -> ProcessFact:
    return ProcessFact(pid, pid * 10, 1, 60, 60, "S", "python", 0.0, 1, 0, via)


class Signals(list[tuple[int, int]]):
    """Takes the place of the kernel: (pid, signal) in the order they were sent."""

    def __call__(self, pid: int, start: int, number: int, proc_root: str = "/proc") -> bool:
        assert start == pid * 10
        self.append((pid, int(number)))
        return True


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Signals:
    sent = Signals()
    monkeypatch.setattr(stop, "signal_process", sent)
    return sent


def test_term_goes_to_main_then_to_all_then_cont_and_kill_and_each_once(signals: Signals) -> None:
    alive = ProcessesReading((member(60, "main"), member(61)), True, True)
    stopper = stop.Stopper(1, 100.0, 10.0, 5.0)
    for at in (100.0, 101.0, 104.9):
        stopper.tick(at, alive)
    assert signals == [(60, 15)]
    stopper.tick(105.0, alive)
    assert signals == [(60, 15), (61, 15)]
    told = stopper.tick(110.0, alive)
    assert signals[2:] == [(60, 18), (60, 9), (61, 18), (61, 9)] and told.killed and told.signals_sent == 4
    assert stopper.tick(114.9, alive).unkillable == () and len(signals) == 6
    assert [p.pid for p in stopper.tick(115.0, alive).unkillable] == [60, 61]
    stopper.tick(116.0, ProcessesReading((), False, True))
    assert stopper.finished


def test_when_main_is_gone_the_rest_is_told_at_once(signals: Signals) -> None:
    stopper = stop.Stopper(1, 100.0, 10.0, 5.0)
    stopper.tick(100.0, ProcessesReading((member(60, "main"), member(61)), True, True))
    stopper.tick(101.0, ProcessesReading((member(61),), False, True))
    assert signals == [(60, 15), (61, 15)]


def test_a_process_table_that_was_not_read_gets_no_signal_and_finishes_nothing(signals: Signals) -> None:
    stopper = stop.Stopper(1, 100.0, 10.0, 5.0)
    told = stopper.tick(200.0, Missing("no /proc"))
    assert signals == [] and not stopper.finished and told.signals_sent == 0


def test_what_is_born_while_we_kill_is_killed_in_the_same_tick(signals: Signals) -> None:
    born = iter([(member(61), member(62)), (member(62),), ()])
    stopper = stop.Stopper(1, 0.0, 0.0, 5.0, rescan=lambda: ProcessesReading(next(born), False, True))
    stopper.tick(0.0, ProcessesReading((member(61),), False, True))
    assert [pid for pid, number in signals if number == 9] == [61, 62]


class Box:
    def __init__(self) -> None:
        self.done = False
        self.started: list[float] = []

    def start(self, now_s: float) -> None:
        self.started.append(now_s)

    def sealed(self, now_s: float) -> bool:
        return self.done


def test_no_signal_before_the_box_is_sealed_and_the_grace_begins_after_it(signals: Signals) -> None:
    box = Box()
    stopper = stop.Stopper(1, 100.0, 10.0, 5.0, box=box)
    alive = ProcessesReading((member(60, "main"),), True, True)
    stopper.tick(100.0, alive)
    assert signals == [] and box.started == [100.0]
    box.done = True
    stopper.tick(104.0, alive)
    stopper.tick(113.0, alive)
    assert signals == [(60, 15)]
    stopper.tick(114.0, alive)
    assert (60, 9) in signals
