"""WCAG 2.2 AA by arithmetic: every text colour of the stylesheet on every ground it stands on, light and dark."""

from __future__ import annotations

import re
from itertools import product

import pytest

from dflash_supervise.web.assets import templates_dir

TONES = ("ok", "done", "busy", "off", "warn", "bad", "unknown")
GROUNDS = ("ground", "card", "inset")


def colours() -> dict[str, tuple[str, str]]:
    css = (templates_dir() / "static" / "app.css").read_text()
    found = re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", css)
    return {name: (light, dark) for name, light, dark in found}


def ratio(one: str, other: str) -> float:
    """Contrast of two sRGB colours, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


TEXT = [
    *product(("ink", "muted", "link", *TONES), GROUNDS),
    *((tone, f"{tone}-ground") for tone in TONES),
    ("ink", "bad-ground"),
    ("bad", "bad-ground"),
]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT)
def test_text_reaches_four_and_a_half(text: str, ground: str, scheme: int) -> None:
    known = colours()
    assert ratio(known[text][scheme], known[ground][scheme]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("shape", "ground"),
    [
        *product(("edge-strong", "line", "gpu-working", "gpu-spinning"), ("card",)),
        ("edge-strong", "ground"), ("gpu-working", "inset"), ("gpu-spinning", "inset"),
    ],
)  # fmt: skip
def test_what_carries_meaning_without_words_reaches_three(shape: str, ground: str, scheme: int) -> None:
    known = colours()
    assert ratio(known[shape][scheme], known[ground][scheme]) >= 3.0


@pytest.mark.parametrize(("text", "ground"), [("#ffffff", "#b3261e"), ("#2a0f0d", "#ff8c82"), ("#10202d", "#8cc0ee")])
def test_words_on_coloured_buttons_reach_four_and_a_half(text: str, ground: str) -> None:
    assert text in (templates_dir() / "static" / "app.css").read_text()
    assert ratio(text, ground) >= 4.5
