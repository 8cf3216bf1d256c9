"""``why``: evidence is whole, ages count from when something was told, and nothing is claimed about a silent host."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_supervise.cli import why_text
from dflash_supervise.cli.say import PLAIN
from tests.unit.cli.double import hang_why, run_doc

Doc = dict[str, Any]

LONG = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2027, " + "unhandled system error " * 6
READINGS = [
    {"what": "processes", "value": "the main process lives, 9 in all", "unit": "", "age_s": 1.2},
    {"what": "step", "value": "120 of 400, training", "unit": "", "age_s": 1.9},
    {"what": "log", "value": 1843200, "unit": "B", "age_s": None},
    {"what": "GPUs", "value": None, "unit": "", "age_s": None},
]


def shown(why: Doc) -> str:
    lines = why_text.render(why, PLAIN)
    assert max(len(line) for line in lines) <= PLAIN.width
    return "\n".join(lines)


def flat(text: str) -> str:
    return " ".join(text.split())


def healthy(**changes: Any) -> Doc:
    told = {"verdict": "running", "findings": [], "next": {"what": "nothing", "in_s": None, "why": ""}}
    return {"run": run_doc(**changes), "verdict": told, "readings": READINGS, "incidents": [], "age_s": 1.2}


def test_a_line_of_the_log_is_wrapped_and_never_cut() -> None:
    why = hang_why()
    why["verdict"]["findings"][3]["key_line"] = LONG
    why["incidents"][0]["key_line"] = LONG
    text = shown(why)
    assert flat(text).count(LONG.strip()) == 2
    assert "\n  > torch" in text and "\n    > torch" in text


def test_a_healthy_run_shows_what_its_judgement_rests_on() -> None:
    text = shown(healthy())
    rows = [line.split(maxsplit=1) for line in text.splitlines()]
    assert text.index("Readings") < text.index("Next")
    assert "  step       120 of 400, training              1.9 s" in text
    assert "  log        1.76 MiB                              -" in text
    assert "  GPUs       unknown                               -" in text, "unknown is never 0"
    assert ["Readings"] in rows


def test_of_a_run_that_is_over_no_reading_is_shown() -> None:
    assert "Readings" not in shown(healthy(final=True))


def test_the_age_of_a_verdict_that_stays_the_same_is_not_that_of_the_last_word() -> None:
    why = hang_why()
    why["run"].update(news_age_s=1.0, verdict_age_s=13.0)
    text = flat(shown(why))
    assert "the host's last word is 1 s old; the verdict was told 13 s ago" in text
    assert "power GPU 0 124 W 14 s" in text, "1.1 s when it was told, 13 s ago"
    why["run"].update(verdict_age_s=1.5)
    assert "was told" not in shown(why)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"news_age_s": 1.0, "verdict_age_s": 5.0}, "stop the attempt in 7 s: then"),
        ({"news_age_s": 1.0, "verdict_age_s": 12.0}, "stop the attempt now: then"),
        (
            {"news_age_s": 60.0, "verdict_age_s": 72.0},
            "stop the attempt, due 1m 00s ago; whether it has happened is not known: then",
        ),
        (
            {"news_age_s": 1.0, "verdict_age_s": 13.0, "reachable": False},
            "stop the attempt, due 1 s ago; whether it has happened is not known: then",
        ),
        ({"verdict_age_s": None}, "stop the attempt, at a time that is not known: then"),
    ],
)
def test_what_comes_next_counts_from_when_it_was_told_and_is_never_now_on_a_silent_host(
    changes: Doc, told: str
) -> None:
    why = hang_why()
    why["run"].update(changes)
    assert told in flat(shown(why))


def test_ages_that_nobody_can_say_are_unknown() -> None:
    why = hang_why()
    why["run"]["verdict_age_s"] = None
    text = flat(shown(why))
    assert "power GPU 0 124 W -" in text and "the verdict was told at an unknown time" in text


def test_a_margin_on_a_silent_host_is_that_of_its_last_word() -> None:
    why = hang_why()
    why["run"].update(news_age_s=50.0)
    assert "31 s of 45 s, 14 s to go when it was last heard of" in flat(shown(why))


def test_a_hold_is_told_with_its_end_instead_of_a_wait() -> None:
    hold = {"want": "hold", "hold_for_s": None, "generation": 3, "acknowledged": True}
    why = healthy(goal=hold)
    why["verdict"]["next"] = {"what": "wait", "in_s": None, "why": "the run is on hold"}
    text = flat(shown(why))
    assert "on hold until released; it is watched, and nothing is done Goal: hold" in text
    assert "wait and watch" not in text
    why["verdict"]["next"] = {"what": "stop", "in_s": 0.0, "why": "the goal is stop"}
    assert "stop the attempt now: the goal is stop" in flat(shown(why))


def test_a_hold_whose_time_is_over_is_not_told_as_one() -> None:
    hold = {"want": "hold", "hold_for_s": 60.0, "hold_left_s": 0.0, "generation": 3, "acknowledged": True}
    text = flat(shown(healthy(goal=hold)))
    assert "on hold" not in text and "the host knows it; its time is over" in text
