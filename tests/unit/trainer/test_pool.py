from __future__ import annotations

import queue
import threading

import pytest

from dflash_trainer import pool
from dflash_trainer.exits import StalledError, WorkerFailedError, WorkerLostError
from dflash_trainer.watchdog import overdue_s


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> pool.Board:
    monkeypatch.setattr(pool, "SLICE_S", 0.01)
    return pool.Board({"a": "cpu", "b": "cpu"}, version=0, limit_s=30.0)


def until(board: pool.Board, done: object) -> None:
    assert callable(done)
    for _ in range(3000):
        if done():
            return
        board.wait_moved(0.01)
    raise AssertionError("nothing happened")


def test_an_exception_in_a_worker_is_printed_like_threading_does_and_reaches_the_loop(
    board: pool.Board, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise KeyError("missing")

    board.start("a", fails, torch_threads=1)
    board.start("b", lambda: board.wait_version(1, "b"), torch_threads=1)
    until(board, lambda: board.living() == ["b"])
    with pytest.raises(WorkerFailedError, match="a: KeyError") as caught:
        board.check()
    assert caught.value.code == 70
    board.close(join_s=20.0)
    assert [worker.alive for worker in board.workers()] == [False, True]
    err = capfd.readouterr().err
    assert err.startswith("Exception in thread a:\nTraceback (most recent call last):\n")
    assert err.rstrip().endswith("KeyError: 'missing'")


def test_a_failure_frees_whoever_waits_at_the_barrier(board: pool.Board) -> None:
    freed = threading.Event()

    def waits() -> None:
        try:
            board.wait_version(5, "a")
        except pool.ClosedError:
            freed.set()
            raise

    def fails() -> None:
        raise RuntimeError("x")

    board.start("a", waits, torch_threads=1)
    board.start("b", fails, torch_threads=1)
    assert freed.wait(20)
    board.close(join_s=20.0)


def test_a_worker_that_ends_without_a_word_is_named(board: pool.Board) -> None:
    def leaves() -> None:
        raise SystemExit

    board.start("a", leaves, torch_threads=1)
    until(board, lambda: board.living() == ["b"])
    until(board, lambda: not board._threads["a"].is_alive())
    with pytest.raises(WorkerLostError, match="a ended"):
        board.check()


def test_with_the_old_behaviour_a_failure_ends_its_worker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SLICE_S", 0.01)
    board = pool.Board({"a": "cpu", "b": "cpu"}, version=0, limit_s=0.0, fatal=False)

    def fails() -> None:
        raise RuntimeError("x")

    board.start("a", fails, torch_threads=1)
    until(board, lambda: board.living() == ["b"])
    board.start("b", lambda: board.moved("b", 3), torch_threads=1)
    until(board, lambda: [w.step for w in board.workers()] == [0, 3])
    assert not board.all_finished()


def test_no_wait_is_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SLICE_S", 0.01)
    board = pool.Board({"a": "cpu"}, version=0, limit_s=0.05)
    full: queue.Queue[int] = queue.Queue(1)
    full.put(1)
    with pytest.raises(StalledError, match="a waits for the parameters of step 3"):
        board.wait_version(3, "a")
    with pytest.raises(StalledError, match="a is starving"):
        board.take(queue.Queue(), "a")
    with pytest.raises(StalledError, match="a finds no free place"):
        board.put(full, 2, "a")


def test_items_pass_in_order_and_the_barrier_opens_when_published(board: pool.Board) -> None:
    way: queue.Queue[int] = queue.Queue(1)
    got: list[int] = []

    def producer() -> None:
        for number in range(5):
            board.put(way, number, "a")

    def consumer() -> None:
        board.wait_version(1, "b")
        got.extend(board.take(way, "b") for _ in range(5))

    board.start("a", producer, torch_threads=1)
    board.start("b", consumer, torch_threads=1)
    board.publish(1)
    until(board, board.all_finished)
    assert got == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("limit_s", "still_s", "want"),
    [(10.0, 9.0, None), (10.0, 11.0, 11.0), (0.0, 1e9, None)],  # 0 switches it off
)
def test_the_watchdog_bites_behind_its_limit_only(limit_s: float, still_s: float, want: float | None) -> None:
    assert overdue_s(moved_at=50.0, now=50.0 + still_s, limit_s=limit_s) == want
