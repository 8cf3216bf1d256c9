"""Numbers for people."""

from __future__ import annotations

import datetime as dt

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


@pytest.mark.parametrize(
    ("goal", "told"),
    [
        ({"want": "run", "hold_for_s": None}, ""),
        ({"want": "hold", "hold_for_s": None, "acknowledged": True}, "on hold until released"),
        ({"want": "hold", "hold_for_s": None}, "on hold until released, once the host has taken it"),
        ({"want": "hold", "hold_for_s": 7200.0}, "on hold for 2h 00m, once the host has taken it"),
        (
            {"want": "hold", "hold_for_s": 7200.0, "acknowledged": True, "hold_left_s": None},
            "on hold for 2h 00m; when that began is not known",
        ),
        (
            {"want": "hold", "hold_for_s": 7200.0, "hold_left_s": 4320.0, "hold_until": "2026-11-30T14:05:31.000Z"},
            "on hold until {:%H:%M} (1h 12m left)",
        ),
        (
            {"want": "hold", "hold_for_s": 2e5, "hold_left_s": 90000.0, "hold_until": "2026-11-30T14:05:31.000Z"},
            "on hold until {:%m-%d %H:%M} (1d 1h left)",
        ),
        ({"want": "hold", "hold_for_s": 60.0, "hold_left_s": 0.0, "hold_until": "2026-11-30T14:05:31.000Z"}, ""),
    ],
)
def test_a_hold_says_until_when_it_lasts_and_what_is_not_known_of_it(goal: dict[str, object], told: str) -> None:
    until = dt.datetime(2026, 11, 30, 14, 5, 31, tzinfo=dt.UTC).astimezone()
    assert words.hold_line({"goal": goal}) == told.format(until)
    assert words.hold_line({"goal": goal, "final": True}) == ""
