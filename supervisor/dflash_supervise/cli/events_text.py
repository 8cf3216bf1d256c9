"""A record as one line of the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dflash_supervise.cli import marks, words
from dflash_supervise.cli.say import Style


def line(record: Mapping[str, Any], style: Style, *, run: str = "") -> str:
    """``05:08:31  #2 verdict   x crash, rank_exception: sentence``; the time is this machine's own."""
    kind = str(record.get("kind") or "")
    attempt = record.get("attempt")
    if isinstance(record.get("incident"), Mapping) and attempt is None:
        attempt = record["incident"].get("attempt")
    who = f"#{attempt}" if attempt is not None else ""
    name = f"{run}  " if run else ""
    return (
        f"{style.paint(words.clock(record.get('at')), 'dim')}  {name}{who:<3} {kind:<13} {_text(kind, record, style)}"
    )


def _text(kind: str, record: Mapping[str, Any], style: Style) -> str:
    match kind:
        case "verdict":
            return _verdict(record, style)
        case "incident":
            incident = record.get("incident")
            body = incident if isinstance(incident, Mapping) else record
            return f"{body.get('state') or ''} {_verdict(body, style)}".strip()
        case "attempt_start":
            remedies = ", ".join(str(r) for r in record.get("remedies") or [])
            return _because(record) + (f" (with {remedies})" if remedies else "")
        case "attempt_end":
            return _ended(record, style)
        case "action":
            return f"{record.get('type') or '?'}: {_because(record)}"
        case "outcome":
            result = {True: "done", False: "failed"}.get(record.get("ok"), "unknown")  # type: ignore[arg-type]  # a missing answer is a key like any other
            detail = f": {record['detail']}" if record.get("detail") else ""
            return f"{record.get('type') or '?'} {result}{detail}"
        case "spec":
            goal = record.get("goal")
            want = goal.get("want") if isinstance(goal, Mapping) else goal
            return f"goal {want} (generation {record.get('generation')}, by {record.get('owner') or '?'})"
        case "agent_start":
            agent = record.get("agent") or {}
            return f"agent pid {agent.get('pid')} (Python {agent.get('python')})"
        case _:
            return str(record.get("text") or "")


def _verdict(body: Mapping[str, Any], style: Style) -> str:
    cause = body.get("cause") or "none"
    name = marks.verdict_word(body) + (f", {cause}" if cause != "none" else "")
    sentence = f": {body['sentence']}" if body.get("sentence") else ""
    return f"{marks.verdict_sign(body.get('verdict'), style)} {name}{sentence}"


def _because(record: Mapping[str, Any]) -> str:
    return str(record.get("because") or "no reason was recorded")


def _ended(record: Mapping[str, Any], style: Style) -> str:
    how = []
    if record.get("code") is not None:
        how.append(f"exit {record['code']}")
    if record.get("signal") is not None:
        how.append(f"signal {record['signal']}")
    if record.get("ran_s") is not None:
        how.append(f"after {words.duration(float(record['ran_s']))}")
    if record.get("step") is not None:
        how.append(f"at step {record['step']}")
    if record.get("checkpoint_step") is not None:
        how.append(f"checkpoint {record['checkpoint_step']}")
    key_line = f" > {record['key_line']}" if record.get("key_line") else ""
    return f"{_verdict(record, style)} ({', '.join(how)}){key_line}"
