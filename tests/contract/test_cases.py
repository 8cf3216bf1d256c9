"""How well logs are told apart: recorded cases, and variants of every kind in our own words."""

from __future__ import annotations

import pytest

from dflash_supervise.core import causes
from tests.contract.cases import Score, accuracy, cases, score

BARS = {"verdict": 0.97, "cause": 0.95, "key line": 0.95, "action": 0.97}
FOLDERS = ("cases", "variants")


@pytest.fixture(scope="module", params=FOLDERS)
def scored(request: pytest.FixtureRequest) -> tuple[str, list[Score]]:
    return request.param, [score(case) for case in cases(request.param)]


def test_the_bars_are_met_and_the_figures_are_printed(scored: tuple[str, list[Score]]) -> None:
    folder, scores = scored
    found = accuracy(scores)
    wrong = [
        f"{one.case.name}: {one.found.verdict} {one.found.cause} {one.found.action} {one.found.key_line[:60]!r}"
        for one in scores
        if not (one.verdict and one.cause and one.action and one.key_line)
    ]
    print(f"\n{folder}: {len(scores)} cases, " + ", ".join(f"{name} {share:.3f}" for name, share in found.items()))
    print("\n".join(wrong))
    assert {name: share for name, share in found.items() if share < BARS[name]} == {}, wrong


def test_no_healthy_run_is_called_a_failure(scored: tuple[str, list[Score]]) -> None:
    assert [one.case.name for one in scored[1] if one.false_alarm] == []


def test_every_diagnosis_says_why_and_points_at_a_line_that_is_there(scored: tuple[str, list[Score]]) -> None:
    for one in scored[1]:
        found = one.found
        assert found.reason, one.case.name
        assert found.restartable == (found.action in (causes.RESTART, causes.AFTER_CLEANUP)), one.case.name
        if found.key_line_number is not None:
            assert 1 <= found.key_line_number <= one.case.log.count(b"\n") + 1, one.case.name


def test_half_of_the_kinds_of_a_quiet_or_noisy_log_are_healthy() -> None:
    healthy = sum(case.healthy for folder in FOLDERS for case in cases(folder))
    assert healthy >= 40
