"""What ``why`` prints: the verdict, what it rests on, what nearly fired, and what happens next."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dflash_supervise.cli import marks, table, words
from dflash_supervise.cli.say import Style

_BAR_CELLS = 10
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
    age_s = float(why.get("age_s") or 0.0)
    blocks = [
        _headline(run, told, age_s, style),
        _evidence(run, told, age_s, style),
        _rules(run, told, style),
        _incidents(run, why.get("incidents") or [], style),
        _attempts(why.get("attempts") or [], style),
        _notes(run.get("notes") or told.get("notes") or [], style),
        _unseen(run.get("missing") or {}, style),
        _next(run, told, age_s, style),
    ]
    lines: list[str] = []
    for block in blocks:
        if block:
            lines += ["", *block] if lines else block
    return lines


def _headline(run: Mapping[str, Any], told: Mapping[str, Any], age_s: float, style: Style) -> list[str]:
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
        *_when(run, told, age_s, style),
        *style.wrap(str(run.get("sentence") or told.get("sentence") or "No verdict has been told yet."), 2),
    ]
    lines += _unreachable(run, style)
    return lines


def _when(run: Mapping[str, Any], told: Mapping[str, Any], age_s: float, style: Style) -> list[str]:
    parts = ["suspected, not confirmed"] if run.get("suspected") else []
    if run.get("phase"):
        parts.append(f"phase {run['phase']}")
    if told:
        parts.append(f"the host's last word is {words.duration(age_s)} old")
    return [style.paint("  " + "; ".join(parts), "dim")] if parts else []


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


def _evidence(run: Mapping[str, Any], told: Mapping[str, Any], age_s: float, style: Style) -> list[str]:
    """The readings of the finding that made the verdict, each with its age."""
    findings = _findings(told, "failing") or _findings(told, "pending")
    mine = [f for f in findings if f.get("verdict") == told.get("verdict")] or findings
    if not mine:
        mine = [f for f in told.get("findings") or [] if f.get("evidence")]
    body = [
        [
            str(item.get("what") or ""),
            words.measured(item.get("value"), str(item.get("unit") or "")),
            words.duration(float(item.get("age_s") or 0.0) + age_s),
        ]
        for item in _unique(item for f in mine for item in f.get("evidence") or [])
    ]
    lines = [style.paint("Evidence", "bold"), *_readings(body, style)] if body else []
    for finding in mine:
        culprit = str(finding.get("culprit") or "")
        if culprit and culprit not in str(run.get("sentence")):
            lines += style.wrap(f"culprit: {culprit}", 2)
    for key_line in dict.fromkeys(str(f["key_line"]) for f in mine if f.get("key_line")):
        lines.append(style.paint("  > ", "dim") + words.cut(key_line, style.width - 4))
    return lines


def _readings(body: list[list[str]], style: Style) -> list[str]:
    """The table of readings; a long value goes on in the next line, for evidence is never cut."""
    names = max(len(row[0]) for row in body)
    ages = max(3, *(len(row[2]) for row in body))
    room = max(20, style.width - names - ages - 6)
    split = []
    for name, value, age in body:
        first, *rest = textwrap.wrap(value, room) or [""]
        split += [[name, first, age], *(["", text, ""] for text in rest)]
    return table.rows(["reading", "value", "age"], split, style=style, right=frozenset({2}), indent=2)


def _unique(items: Iterator[Any]) -> list[Any]:
    seen: dict[tuple[Any, ...], Any] = {}
    for item in items:
        seen.setdefault((item.get("what"), item.get("value"), item.get("unit")), item)
    return list(seen.values())


def _findings(told: Mapping[str, Any], status: str) -> list[Mapping[str, Any]]:
    return [f for f in told.get("findings") or [] if f.get("status") == status]


def _rules(run: Mapping[str, Any], told: Mapping[str, Any], style: Style) -> list[str]:
    """Rules that fired, those on their way with their margin, those that cannot say, and the content ones."""
    findings: Sequence[Mapping[str, Any]] = told.get("findings") or []
    if not findings:
        return []
    lines = [style.paint("Rules", "bold")]
    shown = [*_findings(told, "failing"), *_findings(told, "pending"), *_findings(told, "unknown")]
    width = max((len(str(f["rule"])) for f in shown), default=0)
    for finding in shown:
        status = str(finding["status"])
        sign = marks.status_sign(status, style)
        lines.append(f"  {sign} {str(finding['rule']).ljust(width)}  {_margin(finding, style)}".rstrip())
        if finding.get("reason") and finding["reason"] != run.get("sentence"):
            lines += style.wrap(str(finding["reason"]), 6)
    content = [str(f["rule"]) for f in _findings(told, "ok")]
    if content:
        sign = marks.status_sign("ok", style)
        first, *rest = style.wrap(f"nothing found by {', '.join(content)}", 4)
        lines += [f"  {sign} {first[4:]}", *rest]
    return lines


def _margin(finding: Mapping[str, Any], style: Style) -> str:
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
        f"{words.duration(left_s)} to go"
    )


def _incidents(run: Mapping[str, Any], incidents: Sequence[Mapping[str, Any]], style: Style) -> list[str]:
    """Those that are open or pending in full; of the resolved ones only how many there were."""
    alive = [i for i in incidents if i.get("state") != "resolved"]
    resolved = [i for i in incidents if i.get("state") == "resolved"]
    if not incidents:
        return []
    lines = [style.paint("Incidents", "bold")]
    for incident in alive:
        cause = incident.get("cause") or "none"
        name = str(incident.get("verdict") or "") + (f", {cause}" if cause != "none" else "")
        sign = marks.verdict_sign(incident.get("verdict"), style)
        since = f" since {words.clock(incident['opened_at'])}" if incident.get("opened_at") else ""
        lines.append(
            f"  {sign} {name}: {incident.get('state')}{since} (attempt {incident.get('attempt')}, "
            f"{incident.get('severity')})"
        )
        if incident.get("sentence") and incident["sentence"] != run.get("sentence"):
            lines += style.wrap(str(incident["sentence"]), 4)
        lines += _quoted(incident, style)
        if incident.get("response_text") or incident.get("response"):
            lines += style.wrap(f"\u2192 {incident.get('response_text') or incident['response']}", 4)
    if resolved:
        causes = ", ".join(dict.fromkeys(_short(i) for i in resolved))
        lines += style.wrap(f"{len(resolved)} resolved before: {causes}", 2)
    return lines


def _quoted(incident: Mapping[str, Any], style: Style) -> list[str]:
    if not incident.get("key_line"):
        return []
    return [style.paint("    > ", "dim") + words.cut(str(incident["key_line"]), style.width - 6)]


def _short(incident: Mapping[str, Any]) -> str:
    cause = incident.get("cause") or "none"
    name = cause if cause != "none" else str(incident.get("verdict"))
    return f"{name} (attempt {incident.get('attempt')})"


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


def _next(run: Mapping[str, Any], told: Mapping[str, Any], age_s: float, style: Style) -> list[str]:
    ahead: Mapping[str, Any] = told.get("next") or {}
    lines = [style.paint("Next", "bold")]
    if run.get("final"):
        lines += style.wrap("The run has ended; nothing more happens by itself.", 2)
    elif ahead:
        what = _NEXT.get(str(ahead.get("what")), str(ahead.get("what")))
        when = ""
        if ahead.get("in_s") is not None:
            left_s = float(ahead["in_s"]) - age_s
            when = f" in {words.duration(left_s)}" if left_s >= 0.5 else " now"
        reason = f": {ahead['why']}" if ahead.get("why") else ""
        lines += style.wrap(f"{what}{when}{reason}", 2)
    else:
        lines += style.wrap("not told yet", 2)
    lines += style.wrap(goal(run), 2)
    lines.append(style.paint(f"  {words.command('logs', run['name'])}", "dim"))
    return lines


def goal(run: Mapping[str, Any]) -> str:
    """What the user wants, and whether the host knows it."""
    wanted: Mapping[str, Any] = run.get("goal") or {}
    if not wanted:
        return "Goal: unknown."
    known = "the host knows it"
    if not wanted.get("acknowledged"):
        known = f"pending since {wanted.get('since') or 'an unknown time'}, the host has not confirmed it"
    return f"Goal: {wanted.get('want')} (generation {wanted.get('generation')}; {known}). Policy: {run.get('preset')}."
