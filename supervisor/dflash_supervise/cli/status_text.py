"""The table of ``ps`` and the card of ``status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dflash_supervise.cli import marks, table, words
from dflash_supervise.cli.say import PLAIN, Style
from dflash_supervise.cli.why_text import goal

_RIGHT = frozenset({3, 4, 5, 7, 8})
_HEADER = ("RUN", "HOST", "VERDICT", "STEP", "TOK/S", "ETA", "GPUS", "ATT", "NEWS")


def fleet(runs: Sequence[Mapping[str, Any]], style: Style) -> list[str]:
    """A row a run, in 80 columns as long as names are short; then a line for each run that needs a person."""
    body = []
    colours = []
    for run in runs:
        stale = run.get("reachable") is False
        body.append(
            [
                words.cut(str(run["name"]), 18),
                words.cut(str(run.get("host") or ""), 14),
                f"{marks.verdict_sign(run.get('verdict'), PLAIN)} {marks.verdict_word(run)}",
                words.step_of(run.get("step"), run.get("steps_total")),
                words.number(run.get("tokens_per_s")),
                words.short_duration(run.get("eta_s")),
                marks.gpu_strip(run.get("gpus")),
                str(run.get("attempt") or 0),
                words.short_duration(run.get("news_age_s")),
            ]
        )
        base: tuple[str, ...] = ("dim",) if stale else ()
        colours.append([base if i != 2 else marks.verdict_colours(run.get("verdict")) for i in range(len(_HEADER))])
    lines = table.rows(_HEADER, body, style=style, right=_RIGHT, colours=colours)
    sick = [run for run in runs if run.get("verdict") not in marks.HEALTHY and run.get("verdict") != "stopped"]
    for run in sick:
        if run.get("sentence"):
            lines += ["", *style.wrap(f"{run['name']}: {run['sentence']}")]
            lines.append(style.paint(f"  {words.command('why', run['name'])}", "dim"))
    return lines


def card(run: Mapping[str, Any], style: Style) -> list[str]:
    """One run in a few lines."""
    verdict = run.get("verdict")
    cause = run.get("cause") or "none"
    word = marks.verdict_word(run) + (f", {cause}" if cause != "none" else "")
    head = f"{marks.verdict_sign(verdict, style)} {style.paint(word, 'bold', *marks.verdict_colours(verdict))}"
    lines = [f"{style.paint(str(run['name']), 'bold')}  {head}  attempt {run.get('attempt') or 0}"]
    lines += style.wrap(str(run.get("sentence") or "No verdict has been told yet."), 2)
    facts = [
        ("run", str(run["id"])),
        ("target", str(run.get("target") or "")),
        ("phase", str(run.get("phase") or words.UNKNOWN)),
        ("step", _step(run)),
        ("loss", words.number(run.get("loss"))),
        ("tau", words.number(run.get("tau"))),
        ("tok/s", words.number(run.get("tokens_per_s"))),
        ("GPUs", _gpus(run.get("gpus") or [])),
        ("news", _news(run)),
        ("incidents", f"{run.get('open_incidents') or 0} open"),
    ]
    lines += table.rows((), [list(fact) for fact in facts], style=style, indent=2)
    lines += style.wrap(goal(run), 2)
    lines.append(style.paint(f"  {words.command('why', str(run['name']))}", "dim"))
    return lines


def _step(run: Mapping[str, Any]) -> str:
    text = words.step_of(run.get("step"), run.get("steps_total"))
    return f"{text}, {words.duration(run['eta_s'])} to go" if run.get("eta_s") is not None else text


def _gpus(gpus: Sequence[Mapping[str, Any]]) -> str:
    if not gpus:
        return "none read"
    classes = [str(gpu.get("class") or "unknown") for gpu in gpus]
    counts = ", ".join(f"{classes.count(name)} {name}" for name in dict.fromkeys(classes))
    return f"{marks.gpu_strip(gpus)}  {counts}"


def _news(run: Mapping[str, Any]) -> str:
    if run.get("news_age_s") is None:
        return "none yet"
    age = f"{words.duration(run['news_age_s'])} old"
    if run.get("reachable") is False:
        return f"{age}; the host has not answered since {run.get('unreachable_since') or 'an unknown time'}"
    return age
