"""What ``why`` prints: the verdict, what it rests on, what nearly fired, and what happens next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dflash_supervise.cli import marks, table, why_evidence, why_incidents, words
from dflash_supervise.cli.runs import handle
from dflash_supervise.cli.say import Style
from dflash_supervise.cli.why_evidence import findings

_BAR_CELLS = 10
_FRESH_S = 15.0  # the agent speaks each second and beats each 10 s; of older news nobody says "now"
_TOLD_BEFORE_S = 2.0  # so much older than the last word, a verdict's numbers need their own age
_NEXT = {
    "nothing": "nothing to do",
    "wait": "wait and watch",
    "restart": "restart",
    "launch": "launch",
    "stop": "stop the attempt",
    "page": "page a person",
    "give_up": "give up",
}


def render(why: Mapping[str, Any], style: Style) -> list[str]:
    """The whole answer as lines; why is the API's document, already safe to print."""
    run = why["run"]
    told: Mapping[str, Any] = why.get("verdict") or {}
    blocks = [
        _headline(run, told, style),
        why_evidence.evidence(run, told, style),
        why_evidence.readings(run, why.get("readings") or [], style),
        _rules(run, told, style),
        why_incidents.incidents(run, why.get("incidents") or [], style),
        _attempts(why.get("attempts") or [], style),
        _notes(run.get("notes") or told.get("notes") or [], style),
        _unseen(run.get("missing") or {}, style),
        _next(run, told, style),
    ]
    lines: list[str] = []
    for block in blocks:
        if block:
            lines += ["", *block] if lines else block
    return lines


def _headline(run: Mapping[str, Any], told: Mapping[str, Any], style: Style) -> list[str]:
    verdict = run.get("verdict") or told.get("verdict")
    where = [f"attempt {run.get('attempt') or 0}"]
    if run.get("step") is not None:
        where.append(f"step {words.step_of(run['step'], run.get('steps_total'))}")
    right = " \u00b7 ".join(where)
    left = words.cut(f"{run['name']} on {run.get('host') or '?'}", style.width - len(right) - 2)
    sign = marks.verdict_sign(verdict, style)
    word = style.paint(marks.verdict_word({**told, **run}), "bold", *marks.verdict_colours(verdict))
    cause = run.get("cause") or "none"
    named = f", {cause}" if cause != "none" else ""
    lines = [
        style.paint(left, "bold") + " " * (style.width - len(left) - len(right)) + right,
        style.rule(),
        f"{sign} {word}{named}",
        *_when(run, told, style),
        *style.wrap(str(run.get("sentence") or told.get("sentence") or "No verdict has been told yet."), 2),
    ]
    lines += _unreachable(run, style)
    return lines


def _when(run: Mapping[str, Any], told: Mapping[str, Any], style: Style) -> list[str]:
    parts = ["suspected, not confirmed"] if run.get("suspected") else []
    if run.get("phase"):
        parts.append(f"phase {run['phase']}")
    if run.get("news_age_s") is not None:
        parts.append(f"the host's last word is {words.duration(run['news_age_s'])} old")
        if told:
            parts += _told_before(run)
    return style.wrap("; ".join(parts), 2) if parts else []


def _told_before(run: Mapping[str, Any]) -> list[str]:
    """The age of the verdict's own numbers, where it is not that of the last word: what stays the same is not told."""
    told_s = run.get("verdict_age_s")
    if told_s is None:
        return ["the verdict was told at an unknown time"]
    if told_s - run["news_age_s"] < _TOLD_BEFORE_S:
        return []
    return [f"the verdict was told {words.duration(told_s)} ago"]


def _heard(run: Mapping[str, Any]) -> bool:
    """Does the host speak now? What it does otherwise is not known."""
    age_s = run.get("news_age_s")
    return run.get("reachable") is not False and age_s is not None and age_s <= _FRESH_S


def _unreachable(run: Mapping[str, Any], style: Style) -> list[str]:
    if run.get("reachable") is not False:
        return []
    last = run.get("last_verdict")
    if isinstance(last, Mapping):
        last = last.get("verdict")
    told = f"; the host's last word was {last}" if last else ""
    return style.wrap(
        f"The host has not answered since {run.get('unreachable_since') or 'an unknown time'}{told}. "
        "Its agent goes on without us; nothing is concluded from its silence.",
        2,
    )


def _rules(run: Mapping[str, Any], told: Mapping[str, Any], style: Style) -> list[str]:
    """Rules that fired, those on their way with their margin, those that cannot say, and the content ones."""
    if not told.get("findings"):
        return []
    lines = [style.paint("Rules", "bold")]
    shown = [*findings(told, "failing"), *findings(told, "pending"), *findings(told, "unknown")]
    width = max((len(str(f["rule"])) for f in shown), default=0)
    for finding in shown:
        status = str(finding["status"])
        sign = marks.status_sign(status, style)
        lines.append(f"  {sign} {str(finding['rule']).ljust(width)}  {_margin(finding, _heard(run), style)}".rstrip())
        if finding.get("reason") and finding["reason"] != run.get("sentence"):
            lines += style.wrap(str(finding["reason"]), 6)
    content = [str(f["rule"]) for f in findings(told, "ok")]
    if content:
        sign = marks.status_sign("ok", style)
        first, *rest = style.wrap(f"nothing found by {', '.join(content)}", 4)
        lines += [f"  {sign} {first[4:]}", *rest]
    return lines


def _margin(finding: Mapping[str, Any], heard: bool, style: Style) -> str:
    """How near a rule is to its limit: ``[####------] 31 s of 45 s, 14 s to go``."""
    status = str(finding["status"])
    if status == "unknown":
        return "cannot say"
    held_s = float(finding.get("held_s") or 0.0)
    limit_s = finding.get("confirm_s")
    fired = style.paint("fired", "red") if status == "failing" else ""
    if limit_s is None:
        return f"{fired or 'on its way'}, held {words.duration(held_s)}" if held_s else fired or "on its way"
    if status == "failing":
        return f"{fired}, held {words.duration(held_s)} of the {words.duration(float(limit_s))} it needs"
    share = min(held_s / float(limit_s), 1.0) if limit_s else 1.0
    cells = int(share * _BAR_CELLS)
    bar = "\u2588" * cells + "\u2591" * (_BAR_CELLS - cells)
    left_s = max(float(limit_s) - held_s, 0.0)
    return (
        f"{style.paint(bar, 'yellow')} {words.duration(held_s)} of {words.duration(float(limit_s))}, "
        f"{words.duration(left_s)} to go{'' if heard else ' when it was last heard of'}"
    )


def _attempts(attempts: Sequence[Mapping[str, Any]], style: Style) -> list[str]:
    """How the earlier attempts ended, and what each one began for."""
    ended = [one for one in attempts if one.get("verdict")]
    if not ended:
        return []
    body = []
    for one in ended:
        cause = one.get("cause") or "none"
        body.append(
            [
                f"#{one.get('attempt')}",
                str(one["verdict"]) + (f", {cause}" if cause != "none" else ""),
                words.duration(one.get("ran_s")),
                words.step_of(one.get("step"), None),
                words.step_of(one.get("checkpoint_step"), None),
            ]
        )
    header = ("", "ended as", "after", "at step", "checkpoint")
    lines = table.rows(header, body, style=style, right=frozenset({2, 3, 4}), indent=2)
    return [style.paint("Attempts", "bold"), *lines]


def _notes(notes: Sequence[Any], style: Style) -> list[str]:
    """True at the same time, and no reason to act."""
    if not notes:
        return []
    lines = [style.paint("Also true", "bold")]
    for note in notes:
        text = f"{note.get('slug')}: {note.get('reason')}" if isinstance(note, Mapping) else str(note)
        lines += style.wrap(text, 2)
    return lines


def _unseen(missing: Mapping[str, Any], style: Style) -> list[str]:
    """Readings that nobody answered: unknown, and never taken for idle, empty or dead."""
    if not missing:
        return []
    lines = [style.paint("Not seen", "bold")]
    for reading, reason in missing.items():
        lines += style.wrap(f"{reading}: {reason}", 2)
    return lines


def _next(run: Mapping[str, Any], told: Mapping[str, Any], style: Style) -> list[str]:
    ahead: Mapping[str, Any] = told.get("next") or {}
    held = words.hold_line(run)
    lines = [style.paint("Next", "bold")]
    if run.get("final"):
        lines += style.wrap("The run has ended; nothing more happens by itself.", 2)
    if held:
        lines += style.wrap(f"{held}; it is watched, and nothing is done", 2)
    if ahead and not run.get("final") and not (held and ahead.get("what") in ("wait", "nothing")):
        lines += style.wrap(upcoming(run, ahead), 2)
    elif not ahead and not run.get("final"):
        lines += style.wrap("not told yet", 2)
    lines += style.wrap(goal(run), 2)
    lines.append(style.paint(f"  {words.command('logs', handle(run))}", "dim"))
    return lines


def upcoming(run: Mapping[str, Any], ahead: Mapping[str, Any]) -> str:
    """What happens next, when, and why; ahead is the ``next`` of a verdict."""
    what = _NEXT.get(str(ahead.get("what")), str(ahead.get("what")))
    reason = f": {ahead['why']}" if ahead.get("why") else ""
    return f"{what}{_due(run, ahead)}{reason}"


def _due(run: Mapping[str, Any], ahead: Mapping[str, Any]) -> str:
    """When it happens, counted from when it was told. Whether it has happened only the host knows."""
    if ahead.get("in_s") is None:
        return ""
    if run.get("verdict_age_s") is None:
        return ", at a time that is not known"
    left_s = float(ahead["in_s"]) - float(run["verdict_age_s"])
    if left_s >= 0.5:
        return f" in {words.duration(left_s)}"
    if _heard(run):
        return " now"
    return f", due {words.duration(-left_s)} ago; whether it has happened is not known"


def goal(run: Mapping[str, Any]) -> str:
    """What the user wants, and whether the host knows it."""
    wanted: Mapping[str, Any] = run.get("goal") or {}
    if not wanted:
        return "Goal: unknown."
    known = "the host knows it" + ("; its time is over" if wanted.get("hold_left_s") == 0 else "")
    if not wanted.get("acknowledged"):
        known = f"pending since {wanted.get('since') or 'an unknown time'}, the host has not confirmed it"
    return f"Goal: {wanted.get('want')} (generation {wanted.get('generation')}; {known}). Policy: {run.get('preset')}."
