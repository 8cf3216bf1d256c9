"""A run directory that forgot its newest attempt does not make a living trainer a stranger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.agent.known_attempt import GONE, KnownAttempt
from dflash_supervise.agent.workspace import WorkspaceLook
from dflash_supervise.core.facts import LogReading, Missing

LAUNCH, CHILD = (
    {"attempt": 2, "because": "the goal is run"},
    {"attempt": 2, "pid": 77, "start_ticks": 5, "boot_id": "a"},
)
WHOLE = WorkspaceLook(1.0, True, attempts=(1, 2), launch=LAUNCH, child=CHILD, log=LogReading(exists=True))


@pytest.fixture
def known(tmp_path: Path) -> KnownAttempt:
    found = KnownAttempt(str(tmp_path / "attempt.json"))
    assert found.complete(WHOLE) == WHOLE
    return found


def test_a_look_that_lacks_nothing_stays_as_it_is(known: KnownAttempt) -> None:
    intent = WorkspaceLook(2.0, True, attempts=(1, 2, 3), launch={"attempt": 3})
    assert known.complete(intent) == intent


@pytest.mark.parametrize("later_agent", [False, True])
def test_a_deleted_run_directory_leaves_the_attempt_and_makes_the_rest_unknown(
    known: KnownAttempt, tmp_path: Path, later_agent: bool
) -> None:
    if later_agent:
        known = KnownAttempt(str(tmp_path / "attempt.json"))
    found = known.complete(WorkspaceLook(2.0, False))
    assert (found.newest, found.child, found.launch, found.lost) == (2, CHILD, LAUNCH, GONE)
    assert found.log == Missing(GONE) and found.progress == Missing(GONE)


@pytest.mark.parametrize(
    "changes",
    [
        {"attempts": (), "exit": None},
        {"attempts": (1,), "child": {"attempt": 1, "pid": 66}, "exit": {"code": 0}, "done": True},
    ],
)
def test_an_older_attempt_on_disk_never_stands_for_the_newest_one(known: KnownAttempt, changes: dict[str, Any]) -> None:
    found = known.complete(WorkspaceLook(2.0, True, **changes))
    assert (found.newest, found.child, found.exit, found.done) == (2, CHILD, None, False)
    assert "attempt 2 ran here" in found.lost


def test_what_is_left_of_the_attempt_is_used(known: KnownAttempt) -> None:
    left = WorkspaceLook(2.0, True, attempts=(1, 2), exit={"code": 1}, log=LogReading(exists=True, size_bytes=9))
    found = known.complete(left)
    assert (found.child, found.exit, found.log) == (CHILD, left.exit, left.log) and found.lost


def test_a_run_directory_that_is_gone_before_its_first_attempt_is_told_too(tmp_path: Path) -> None:
    found = KnownAttempt(str(tmp_path / "attempt.json")).complete(WorkspaceLook(2.0, False))
    assert (found.newest, found.lost) == (0, GONE)


def test_what_this_host_knows_alone_is_the_attempt_and_nothing_about_it(known: KnownAttempt, tmp_path: Path) -> None:
    found = known.alone(3.0)
    assert found is not None and (found.newest, found.child, found.launch) == (2, CHILD, LAUNCH)
    assert isinstance(found.progress, Missing) and isinstance(found.log, Missing) and not found.lost
    assert KnownAttempt(str(tmp_path / "none.json")).alone(3.0) is None


def test_a_runtime_folder_that_takes_nothing_costs_no_tick(tmp_path: Path) -> None:
    known = KnownAttempt(str(tmp_path / "gone" / "attempt.json"))
    known.complete(WHOLE)
    assert known.complete(WorkspaceLook(2.0, False)).newest == 2
