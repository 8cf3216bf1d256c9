"""What the laboratory calls left behind: every process but a tmux server, which it ends itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from tests import conftest
from tests.lab import processes
from tests.lab.processes import Process


class Corner:
    """A laboratory whose tmux server takes three more looks to die."""

    def __init__(self, left: list[Process]) -> None:
        self._left = left
        self._dying: Iterator[list[Process]] = iter([[named("tmux: server")]] * 3)

    def leftovers(self) -> list[Process]:
        return self._left

    def tmux_servers(self) -> list[Process]:
        return next(self._dying, [])


def named(comm: str) -> Process:
    return Process(2**22 + 1, 1, 1, "R", comm, (comm,), frozenset())


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "wait_until", lambda condition, within_s: condition())


def test_a_tmux_server_that_is_still_dying_is_not_left_behind() -> None:
    assert conftest.end_everything(cast(conftest.Laboratory, Corner([]))) == []


def test_any_other_process_is_left_behind_and_named() -> None:
    left = conftest.end_everything(cast(conftest.Laboratory, Corner([named("python3")])))
    assert [process.comm for process in left] == ["python3"]
