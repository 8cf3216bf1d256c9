"""When an attempt has ended and how, from what its files and processes say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dflash_supervise.agent.observe import attempt_of, exit_of, is_interrupted, parse_exit
from dflash_supervise.agent.sight import Sight
from dflash_supervise.agent.workspace import WorkspaceLook
from dflash_supervise.core.facts import ExitReading, Missing, ProcessesReading

CHILD = {"pid": 40, "start_ticks": 7, "keeper_pid": 39, "keeper_start_ticks": 6, "boot_id": "a", "at_s": 5.0}
EXIT = {"code": 1, "signal": None, "exec_error": None, "oom_kills": 3, "cgroup_oom_kills": 0, "ran_s": 9}


def look(**changes: Any) -> WorkspaceLook:
    base: dict[str, Any] = {"attempts": (1, 2), "launch": {"at_s": 4.0, "boot_id": "a"}, "child": CHILD}
    return WorkspaceLook(at_s=10.0, there=True, **{**base, **changes})


def ended(seen: WorkspaceLook, main: bool | None, keeper: bool | None, **more: Any) -> ExitReading | None:
    attempt = attempt_of(seen, "a")
    keys: dict[str, Any] = {"exit_copy": None, "silent_s": 0.0, "by_us": False, **more}
    return exit_of(seen, attempt, main_alive=main, keeper_alive=keeper, **keys)


def test_pids_of_another_boot_name_nobody_and_the_end_had_no_witness() -> None:
    seen = look()
    attempt = attempt_of(seen, "b")
    assert (attempt.main, attempt.keeper, attempt.fact.main_pid) == (None, None, None)
    found = exit_of(seen, attempt, exit_copy=None, main_alive=None, keeper_alive=False, silent_s=0.0, by_us=False)
    assert found == ExitReading(None, None, witnessed=False)


@pytest.mark.parametrize(
    ("main", "keeper", "over"),
    [
        (True, True, False),
        (True, False, False),
        (False, True, False),  # the keeper is about to tell
        (False, False, True),
        (None, False, False),  # unknown is never an end
        (False, None, False),
        (None, None, False),
    ],
)
def test_without_exit_json_only_two_known_deaths_are_an_end(main: bool | None, keeper: bool | None, over: bool) -> None:
    assert (ended(look(), main, keeper) is not None) is over


@pytest.mark.parametrize(
    ("main", "silent_s", "over"),
    [
        (False, 29.0, False),  # it may still be writing
        (False, 31.0, True),
        (True, 31.0, False),
        (None, 31.0, False),
    ],
)
def test_a_living_keeper_that_never_tells_is_no_witness(main: bool | None, silent_s: float, over: bool) -> None:
    found = ended(look(), main, True, silent_s=silent_s)
    assert found == (ExitReading(None, None, witnessed=False) if over else None)


def test_silence_counts_only_while_nothing_lives_and_not_across_a_gap() -> None:
    sight = Sight.__new__(Sight)
    sight._empty = (0, 0.0, 0.0)
    empty = ProcessesReading(members=(), main_alive=False, keeper_alive=True)

    def silent(now_s: float, seen: ProcessesReading | Missing = empty, number: int = 2) -> float:
        return sight._silent_s(number, seen, now_s)

    assert [silent(at) for at in (100.0, 101.0, 104.0)] == [0.0, 1.0, 4.0]
    assert silent(900.0) == 0.0, "the machine slept"
    assert silent(901.0) == 1.0
    assert silent(902.0, Missing("denied")) == 0.0 and silent(903.0) == 0.0
    assert silent(904.0, replace(empty, main_alive=True)) == 0.0 and silent(905.0) == 0.0
    assert silent(906.0, number=3) == 0.0


def test_the_runtime_copy_tells_an_end_that_the_workspace_does_not() -> None:
    found = ended(look(), False, True, exit_copy=EXIT)
    assert found is not None and (found.code, found.witnessed) == (1, True)


def test_the_cgroups_own_oom_counter_outranks_the_machines() -> None:
    assert parse_exit(EXIT, done=False, by_us=False).oom_kills == 0
    assert parse_exit({**EXIT, "cgroup_oom_kills": None}, done=False, by_us=False).oom_kills == 3


def test_an_intent_without_a_keeper_is_closed_only_after_the_keeper_had_its_time() -> None:
    attempt = attempt_of(look(child=None), "a")
    assert attempt.fact.intent_open and attempt.fact.number == 2
    assert not is_interrupted(attempt, intent_age_s=5.0, keeper_holds=False)
    assert not is_interrupted(attempt, intent_age_s=50.0, keeper_holds=True)
    assert not is_interrupted(attempt, intent_age_s=50.0, keeper_holds=None)
    assert is_interrupted(attempt, intent_age_s=11.0, keeper_holds=False)


def test_an_adopted_run_ends_with_its_process_and_its_code_is_unknown() -> None:
    child = {**CHILD, "keeper_pid": None, "adopted": True}
    assert ended(look(attempts=(1,), child=child), True, False) is None
    assert ended(look(attempts=(1,), child=child), False, True) == ExitReading(None, None, witnessed=False)
