"""What ``why`` shows of incidents: the open ones in full, and what the newest resolved one rested on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dflash_supervise.cli import marks, why_evidence, words
from dflash_supervise.cli.say import Style

Doc = Mapping[str, Any]


def incidents(run: Doc, told: Sequence[Doc], style: Style) -> list[str]:
    """Open and pending ones first; of the resolved ones the newest, for it is what a restart is asked about."""
    if not told:
        return []
    alive = [one for one in told if one.get("state") != "resolved"]
    resolved = [one for one in told if one.get("state") == "resolved"]
    lines = [style.paint("Incidents", "bold")]
    for one in alive:
        lines += _in_full(run, one, style)
    if resolved and not alive:
        newest, *resolved = sorted(resolved, key=_age_order, reverse=True)
        lines += _in_full(run, newest, style)
        lines += why_evidence.frozen(newest.get("evidence") or [], style, 4)
    if resolved:
        names = ", ".join(dict.fromkeys(_short(one) for one in resolved))
        lines += style.wrap(f"{len(resolved)} resolved before: {names}", 2)
    return lines


def _age_order(one: Doc) -> tuple[int, str]:
    return int(one.get("attempt") or 0), str(one.get("opened_at") or "")


def _in_full(run: Doc, one: Doc, style: Style) -> list[str]:
    cause = one.get("cause") or "none"
    name = str(one.get("verdict") or "") + (f", {cause}" if cause != "none" else "")
    sign = marks.verdict_sign(one.get("verdict"), style)
    since = f" since {words.clock(one['opened_at'])}" if one.get("opened_at") else ""
    if one.get("state") == "resolved" and one.get("resolved_at"):
        since += f", resolved {words.clock(one['resolved_at'])}"
        state = "was open"
    else:
        state = str(one.get("state"))
    lines = [f"  {sign} {name}: {state}{since} (attempt {one.get('attempt')}, {one.get('severity')})"]
    if one.get("sentence") and one["sentence"] != run.get("sentence"):
        lines += style.wrap(str(one["sentence"]), 4)
    if one.get("key_line"):
        lines += why_evidence.quoted(str(one["key_line"]), style, 4)
    if one.get("response_text") or one.get("response"):
        lines += style.wrap(f"\u2192 {one.get('response_text') or one['response']}", 4)
    return lines


def _short(incident: Doc) -> str:
    cause = incident.get("cause") or "none"
    name = cause if cause != "none" else str(incident.get("verdict"))
    return f"{name} (attempt {incident.get('attempt')})"
