"""The table of ``ps`` and the card of ``status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dflash_supervise.cli import marks, say, table, words
from dflash_supervise.cli.runs import handle, label
from dflash_supervise.cli.say import PLAIN, Style
from dflash_supervise.cli.why_text import goal, upcoming

_RIGHT = frozenset({3, 4, 5, 7, 8})
_TOLD = 3  # runs that one line names at most
_HEADER = ("RUN", "HOST", "VERDICT", "STEP", "TOK/S", "ETA", "GPUS", "ATT", "NEWS")


def show(runs: Sequence[Mapping[str, Any]], *, clear: bool = False, hidden: int = 0) -> None:
    """The table on stdout; without a row, what to type. hidden: runs that ended too long ago to be in it."""
    style = say.stdout_style()
    screen = "\x1b[H\x1b[2J" if clear and style.colour else ""
    if runs:
        say.data(screen + "\n".join(fleet(runs, style)))
    elif hidden:
        say.talk(f"no run of the last day; {hidden} older: {words.command('ps', '-a')}")
    else:
        say.talk("no runs; start one: dflash-supervise start [user@]host:/absolute/workspace")


def fleet(runs: Sequence[Mapping[str, Any]], style: Style) -> list[str]:
    """A row a run, in 80 columns as long as names are short; then the runs on hold, and those that need a person."""
    body = []
    colours = []
    for run in runs:
        stale = run.get("reachable") is False
        body.append(
            [
                label(run),
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
    held = [f"{handle(run)}: {words.hold_line(run)}" for run in runs if words.hold_line(run)]
    lines += ["", *held] if held else []
    for (name, sentence), these in _sick(runs).items():
        # One name that failed the same way again and again is one line; its runs are told apart by their ids.
        who = ", ".join(handle(run) for run in these[:_TOLD])
        more = f" and {len(these) - _TOLD} more of {name}" if len(these) > _TOLD else ""
        lines += ["", *style.wrap(f"{who}{more}: {sentence}")]
        lines.append(style.paint(f"  {words.command('why', handle(these[0]))}", "dim"))
    return lines


def _sick(runs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in runs:
        if run.get("sentence") and run.get("verdict") not in marks.HEALTHY and run.get("verdict") != "stopped":
            found.setdefault((str(run["name"]), str(run["sentence"])), []).append(run)
    return found


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
        ("phase", _phase(run)),
        ("step", _step(run)),
        ("loss", words.number(run.get("loss"))),
        ("tau", words.number(run.get("tau"))),
        ("tok/s", words.number(run.get("tokens_per_s"))),
        ("GPUs", _gpus(run.get("gpus") or [])),
        ("news", _news(run)),
        ("incidents", f"{run.get('open_incidents') or 0} open"),
    ]
    lines += table.rows((), [list(fact) for fact in facts], style=style, indent=2)
    lines += [line for text in (*_ahead(run), goal(run)) for line in style.wrap(text, 2)]
    lines.append(style.paint(f"  {words.command('why', handle(run))}", "dim"))
    return lines


def _ahead(run: Mapping[str, Any]) -> list[str]:
    """The hold, and what happens next by itself, where there is either."""
    held = words.hold_line(run)
    told: Mapping[str, Any] = run.get("next") or {}
    quiet = run.get("final") or told.get("what") in (None, "nothing") or (held and told.get("what") == "wait")
    found = [f"{held[:1].upper()}{held[1:]}."] if held else []
    return found if quiet else [*found, f"Next: {upcoming(run, told).rstrip('.')}."]


def _phase(run: Mapping[str, Any]) -> str:
    phase = run.get("phase")
    if not phase:
        return words.UNKNOWN
    return f"{phase}, when it ended" if run.get("attempt_ended") and phase != "done" else str(phase)


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
