"""What ``why`` shows of facts: the evidence of the verdict, the newest readings, lines quoted from the log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dflash_supervise.cli import table, words
from dflash_supervise.cli.say import Style


def evidence(run: Mapping[str, Any], told: Mapping[str, Any], style: Style) -> list[str]:
    """The readings of the finding that made the verdict, each with its age, and the line of the log beside them."""
    accused = findings(told, "failing") or findings(told, "pending")
    mine = [f for f in accused if f.get("verdict") == told.get("verdict")] or accused
    if not mine:
        mine = [f for f in told.get("findings") or [] if f.get("evidence")]
    items = _unique(item for f in mine for item in f.get("evidence") or [])
    since_s = run.get("verdict_age_s")
    lines = _section("Evidence", [_row(item, _later(item.get("age_s") or 0.0, since_s)) for item in items], style)
    for finding in mine:
        culprit = str(finding.get("culprit") or "")
        if culprit and culprit not in str(run.get("sentence")):
            lines += style.wrap(f"culprit: {culprit}", 2)
    for key_line in dict.fromkeys(str(f["key_line"]) for f in mine if f.get("key_line")):
        lines += quoted(key_line, style)
    return lines


def readings(run: Mapping[str, Any], seen: Sequence[Mapping[str, Any]], style: Style) -> list[str]:
    """What was read last, moved or not; of a run that is over nothing is read any more."""
    if run.get("final"):
        return []
    return _section("Readings", [_row(item, item.get("age_s")) for item in seen], style)


def frozen(items: Sequence[Mapping[str, Any]], style: Style, indent: int) -> list[str]:
    """Evidence as it stood when an incident was announced: what and value, whole, a line each."""
    lines: list[str] = []
    for item in _unique(iter(items)):
        value = words.measured(item.get("value"), str(item.get("unit") or ""))
        lines += style.wrap(f"{item.get('what')}: {value}", indent)
    return lines


def findings(told: Mapping[str, Any], status: str) -> list[Mapping[str, Any]]:
    return [f for f in told.get("findings") or [] if f.get("status") == status]


def quoted(text: str, style: Style, indent: int = 2) -> list[str]:
    """A line of the log, whole: what does not fit goes on in the next line, for evidence is never cut."""
    pad = " " * indent
    first, *rest = _fitted(text, style.width - indent - 2)
    return [style.paint(f"{pad}> ", "dim") + first, *(f"{pad}  {more}" for more in rest)]


def _section(title: str, body: list[list[str]], style: Style) -> list[str]:
    """A table of reading, value and age under its title; empty without a row."""
    if not body:
        return []
    names = max(len(row[0]) for row in body)
    ages = max(3, *(len(row[2]) for row in body))
    room = max(20, style.width - names - ages - 6)
    split = []
    for name, value, age in body:
        first, *rest = _fitted(value, room)
        split += [[name, first, age], *(["", text, ""] for text in rest)]
    lines = table.rows(["reading", "value", "age"], split, style=style, right=frozenset({2}), indent=2)
    return [style.paint(title, "bold"), *lines]


def _row(item: Mapping[str, Any], age_s: float | None) -> list[str]:
    value = words.measured(item.get("value"), str(item.get("unit") or ""))
    return [str(item.get("what") or ""), value, words.duration(age_s)]


def _later(age_s: float, since_s: float | None) -> float | None:
    """The age of what was so old when it was told; None when nobody can say how long ago that was."""
    return None if since_s is None else age_s + float(since_s)


def _fitted(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _unique(items: Iterator[Any]) -> list[Any]:
    seen: dict[tuple[Any, ...], Any] = {}
    for item in items:
        seen.setdefault((item.get("what"), item.get("value"), item.get("unit")), item)
    return list(seen.values())
