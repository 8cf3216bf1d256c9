"""Numbers for people."""

from __future__ import annotations

import pytest

from dflash_supervise.cli import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.44, "0.4 s"),
        (9.97, "10 s"),
        (59.4, "59 s"),
        (59.7, "1m 00s"),
        (200, "3m 20s"),
        (7500, "2h 05m"),
        (273600, "3d 4h"),
        (-1, "0 s"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (72.0, "s", "1m 12s"),
        (124.0, "W", "124 W"),
        (3, "", "3"),
        (None, "W", "unknown"),
        (1536 * 1024**2, "B", "1.5 GiB"),
        ("futex_wait", "", "futex_wait"),
        (12345.678, "tok/s", "12,346 tok/s"),
        (0.012345, "s", "0 s"),
    ],
)
def test_evidence_values_carry_their_unit(value: float | str | None, unit: str, text: str) -> None:
    assert words.measured(value, unit) == text


def test_a_line_to_copy_is_quoted_for_a_shell() -> None:
    assert words.command("logs", "a b") == "dflash-supervise logs 'a b'"
