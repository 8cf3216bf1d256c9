"""Numbers and ages in words."""

from __future__ import annotations

import pytest

from dflash_supervise.core.verdicts import Verdict
from dflash_supervise.web import words
from dflash_supervise.web.assets import templates_dir, vendored
from dflash_supervise.web.render import page
from dflash_supervise.web.view import run_view
from tests.unit.web.docs import gpu_docs, run_doc


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(None, "\u2013"), (0, "0 s"), (-3, "0 s"), (99.9, "99 s"), (100, "1 min"), (3599, "59 min"), (3600, "1 h"),
     (7830, "2 h 10 min"), (90000, "1 d 1 h"), (float("inf"), "\u2013")],
)  # fmt: skip
def test_an_age_is_short_and_unknown_is_a_dash(seconds: float | None, want: str) -> None:
    assert words.age(seconds) == want


@pytest.mark.parametrize(
    ("value", "want"), [(None, "\u2013"), (913.4, "913"), (9999, "9,999"), (48210.0, "48.2k"), (3.21e6, "3.21M")]
)
def test_a_rate_has_three_figures(value: float | None, want: str) -> None:
    assert words.rate(value) == want


@pytest.mark.parametrize(
    ("value", "want"), [(None, "\u2013"), (0, "0 B"), (94, "94 B"), (12345, "12.3 kB"), (1.8e6, "1.8 MB")]
)
def test_a_size_has_its_unit(value: float | None, want: str) -> None:
    assert words.size(value) == want


@pytest.mark.parametrize(
    ("stamp", "want"),
    [("1970-01-01T00:01:00Z", 60.0), ("1970-01-01T00:01:00.5+00:00", 60.5), (60, 60.0), ("soon", None), (None, None),
     (True, None)],
)  # fmt: skip
def test_a_time_is_read_or_unknown(stamp: object, want: float | None) -> None:
    assert words.unix(stamp) == want


@pytest.mark.parametrize("verdict", [verdict.value for verdict in Verdict])
def test_every_verdict_has_a_tone_with_an_icon_of_its_own(verdict: str) -> None:
    for suspected in (False, True):
        tone = words.tone(verdict, suspected=suspected)
        assert (templates_dir() / "static" / f"icon-{tone}.svg").is_file()
        assert f'id="i-{tone}"' in page("sprite.html")


@pytest.mark.parametrize(
    ("kinds", "want"),
    [
        ([], "no GPU readings"),
        (["working"] * 8, "all 8 working"),
        (["working"] * 7 + ["spinning"], "7 working; GPU 7 spinning"),
        (["working", "idle", "working", "idle"], "GPU 0, 2 working; GPU 1, 3 idle"),
        (["nonsense"], "all 1 unknown"),
    ],
)
def test_the_strip_in_words_counts_the_crowd_and_names_the_odd_ones(kinds: list[str], want: str) -> None:
    assert run_view(run_doc("a", 0.0, gpus=gpu_docs(kinds)), stale_s=15).strip == want


def test_templates_come_from_the_checkout_and_vendored_files_are_told() -> None:
    assert (templates_dir() / "web" / "base.html").is_file()
    assert vendored(templates_dir() / "web") == {"htmx": False, "uplot": False}


def test_back_ticks_become_code_and_everything_is_escaped() -> None:
    from dflash_supervise.web import Refused
    from dflash_supervise.web.render import refusal_page

    text = refusal_page(Refused("x", "No <b>.", "Run `a <b>` or `c", exit_code=1))
    assert "No &lt;b&gt;." in text
    assert "Run `a &lt;b&gt;` or `c" in text
    assert "<code>a &lt;b&gt;</code>" in refusal_page(Refused("x", "m", "Run `a <b>`.", exit_code=1))
