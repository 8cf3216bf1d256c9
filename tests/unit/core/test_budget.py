"""How often, how soon, and when not again: budget and response as pure functions of what ended before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_supervise.core import budget
from dflash_supervise.core.memory import EndedAttempt, Memory, Restart
from dflash_supervise.core.policy import MOST_COUNT, MOST_FACTOR, MOST_S, Policy, out_of_range
from dflash_supervise.core.respond import respond
from dflash_supervise.core.verdicts import Verdict

POLICY = Policy()


def ended(number: int = 5, cause: str = "segfault", **more: object) -> EndedAttempt:
    base = EndedAttempt(number, Verdict.CRASH, cause, "x", f"{cause}|a.py:1|training|{number}", 100_000.0, 99_000.0)
    return replace(base, **more)  # type: ignore[arg-type]


def restarted(*ages_s: float, cause: str = "nccl_timeout") -> tuple[Restart, ...]:
    return tuple(Restart(100_000.0 - age, cause, 2 + index) for index, age in enumerate(ages_s))


@pytest.mark.parametrize(
    ("ages", "want"),
    [((), None), ((10.0, 20.0), None), ((10.0, 20.0, 3599.0), "3 of 3"), ((10.0, 20.0, 3601.0), None)],
)
def test_a_cause_has_so_many_restarts_in_a_window(ages: tuple[float, ...], want: str | None) -> None:
    found = budget.refusal(Memory(restarts=restarted(*ages)), ended(cause="nccl_timeout"), POLICY, 100_000.0)
    assert (found is None) is (want is None) and (want or "") in (found or "")


def test_eight_restarts_in_a_day_are_the_most_whatever_their_causes_and_whatever_was_credited() -> None:
    ages = [3700.0 * index for index in range(1, 9)]
    causes = tuple(replace(one, cause=f"cause-{index}") for index, one in enumerate(restarted(*ages)))
    memory = Memory(restarts=causes, ended=(ended(4, credited=True),))
    found = budget.refusal(memory, ended(), POLICY, 100_000.0)
    assert found is not None and "8 restarts in 24 h" in found
    assert budget.refusal(memory, ended(), POLICY, 100_000.0 + 86_400) is None


def test_a_credited_checkpoint_makes_the_restarts_before_it_free() -> None:
    memory = Memory(restarts=restarted(500.0, 400.0, 300.0), ended=(ended(4, ended_at_s=99_800.0, credited=True),))
    assert budget.spent(memory, "nccl_timeout", POLICY, 100_000.0) == 0
    later = replace(memory, ended=(ended(4, ended_at_s=99_650.0, credited=True),))
    assert budget.spent(later, "nccl_timeout", POLICY, 100_000.0) == 1


@pytest.mark.parametrize(
    ("earlier", "again"),
    [
        ({}, True),
        ({"checkpoint_step": 40}, True),
        ({"person": True}, False),
        ({"fingerprint": "segfault|b.py:2|training|5"}, False),
        ({"checkpoint_step": 39}, False),
    ],
)
def test_the_same_failure_is_the_same_place_at_the_same_step_with_nothing_saved_in_between(
    earlier: dict[str, object], again: bool
) -> None:
    now = ended(5, checkpoint_step=40)
    before = ended(4, **{"fingerprint": now.fingerprint, "checkpoint_step": 40, **earlier})
    found = budget.refusal(Memory(ended=(before, now)), now, POLICY, 100_000.0)
    assert ("deterministic" in (found or "")) is again


def test_the_wait_grows_with_each_restart_up_to_a_bound_and_is_the_same_for_the_same_end() -> None:
    waits = [
        budget.backoff_s(Memory(restarts=restarted(*range(1, n + 1))), ended(cause="nccl_timeout"), POLICY, 100_000.0)
        for n in range(8)
    ]
    assert waits == sorted(waits) and 5.0 <= waits[0] <= 5.5 and 300.0 <= waits[-1] <= 330.0
    assert waits[0] == budget.backoff_s(Memory(), ended(cause="nccl_timeout"), POLICY, 200_000.0)


def test_restarts_older_than_a_day_are_forgotten() -> None:
    memory = Memory(restarts=restarted(86_500.0, 10.0))
    kept = budget.remember(memory, Restart(100_000.0, "x", 9))
    assert [one.attempt for one in kept] == [3, 9]


@pytest.mark.parametrize(
    ("end", "preset", "kind", "action"),
    [
        (ended(), "auto", "bundled", "restart"),
        (ended(), "careful", "foreign", "restart"),
        (ended(), "observe", "bundled", "alert_human"),
        (ended(), "auto", "adopted", "alert_human"),
        (ended(verdict=Verdict.HANG, cause="lock_deadlock"), "careful", "bundled", "alert_human"),
        (ended(verdict=Verdict.HANG, cause="lock_deadlock"), "auto", "bundled", "restart"),
        (ended(cause="nan_loss"), "auto", "bundled", "alert_human"),
        (ended(cause="duplicate_session"), "auto", "bundled", "alert_human"),
        (ended(cause="bug_in_code"), "auto", "bundled", "no_restart_fix_config"),
        (ended(verdict=Verdict.NO_LOG, cause="none"), "auto", "foreign", "no_restart_fix_config"),
        (ended(verdict=Verdict.EARLY_CRASH, cause="none"), "auto", "foreign", "no_restart_fix_config"),
        (ended(verdict=Verdict.EARLY_CRASH, cause="rank_exception"), "auto", "bundled", "no_restart_fix_config"),
        (ended(cause="host_oom_kill"), "auto", "bundled", "no_restart_fix_config"),
        (ended(verdict=Verdict.EARLY_CRASH, cause="port_in_use"), "auto", "bundled", "restart_after_cleanup"),
        (ended(verdict=Verdict.ENDED_UNCLEAR, cause="none"), "auto", "foreign", "alert_human"),
        (ended(verdict=Verdict.ENDED_UNCLEAR, cause="none"), "auto", "bundled", "restart"),
        (ended(verdict=Verdict.COMPLETED, cause="none"), "auto", "bundled", "none"),
        (ended(cause="killed_externally"), "careful", "foreign", "alert_human"),
        (ended(cause="killed_externally"), "auto", "foreign", "restart"),
    ],
)
def test_the_table_of_responses(end: EndedAttempt, preset: str, kind: str, action: str) -> None:
    found = respond(end, Memory(), Policy(preset=preset), kind, 100_000.0)
    assert found.action == action and (found.text or end.verdict is Verdict.COMPLETED)


def test_a_remedy_is_tried_once_and_only_if_the_policy_allows_it() -> None:
    end, allowed = ended(cause="fx_tracing_race"), Policy(remedies=("process_workers",))
    assert respond(end, Memory(), allowed, "bundled", 0.0).remedies == ("process_workers",)
    assert respond(end, Memory(remedies=("process_workers",)), allowed, "bundled", 0.0).remedies == ()
    assert "with process workers" in respond(end, Memory(), allowed, "bundled", 0.0).text
    assert respond(end, Memory(), POLICY, "bundled", 0.0).remedies == (), "the bundled trainer has none yet"


def test_a_back_off_never_grows_beyond_what_a_number_holds() -> None:
    widest = Policy(backoff_s=MOST_S, backoff_factor=MOST_FACTOR, backoff_max_s=60.0, window_s=MOST_S)
    memory = Memory(restarts=restarted(*[1.0] * 1000))
    assert 60.0 <= budget.backoff_s(memory, ended(cause="nccl_timeout"), widest, 100_000.0) <= 66.0


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("grace_s", MOST_S, None),
        ("grace_s", 2 * MOST_S, "366 days"),
        ("grace_s", float("nan"), "366 days"),
        ("suspect_steps", MOST_FACTOR, None),
        ("suspect_steps", float("inf"), "from 0 to 1000"),
        ("max_restarts", MOST_COUNT, None),
        ("max_restarts", MOST_COUNT + 1, "from 0 to"),
        ("max_restarts", -1, "negative"),
        ("preset", "auto", None),
        ("remedies", ("x",), None),
    ],
)
def test_a_number_of_the_policy_has_a_range(field: str, value: object, said: str | None) -> None:
    found = out_of_range(field, value)
    assert (found is None) is (said is None) and (said or "") in (found or "")
