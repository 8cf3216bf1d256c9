"""The story of a run: what was decided and done, without the pulse of observations and heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dflash_supervise.web.control import Doc, Reads
from dflash_supervise.web.ladder import STALE_NEWS_S
from dflash_supervise.web.sgr import plain
from dflash_supervise.web.view import incident_view, run_view
from dflash_supervise.web.words import count, spoken, tone, unix
from dflash_supervise.wire import STORY_KINDS

TIMELINE_ROWS = 200


@dataclass(frozen=True)
class Entry:
    """One line of the timeline."""

    row: int
    at: float | None
    kind: str
    tone: str
    title: str
    detail: str
    attempt: int | None


def timeline_values(store: Reads, doc: Doc, before: int | None, now: float) -> dict[str, Any]:
    """What was decided and done, newest first."""
    limit = TIMELINE_ROWS
    if before is None:
        records = store.records(str(doc["id"]), kinds=STORY_KINDS, limit=limit + 1, newest=True)
    else:
        # Pages backwards by reading what lies before a row: rows ascend, so the first part is what is left.
        records = [item for item in _all_story(store, doc) if int(item["row"]) < before][-(limit + 1) :]
    more = len(records) > limit
    entries = [_entry(item) for item in reversed(records[-limit:])]
    run = run_view(doc, stale_s=STALE_NEWS_S)
    return {
        "now": now,
        "run": run,
        "entries": entries,
        "older": entries[-1].row if more and entries else None,
        "tone": run.tone,
        "title": f"timeline \u00b7 {run.name}",
    }


def _all_story(store: Reads, doc: Doc) -> list[Doc]:
    out: list[Doc] = []
    after = 0
    while batch := store.records(str(doc["id"]), after=after, kinds=STORY_KINDS, limit=1000):
        out += batch
        after = int(batch[-1]["row"])
    return out


def _entry(record: Doc) -> Entry:
    kind = str(record.get("kind"))
    write = _WRITERS.get(kind)
    title, detail, mood = write(record) if write else (spoken(kind), "", "off")
    return Entry(
        row=int(record.get("row") or 0),
        at=unix(record.get("at")),
        kind=kind,
        tone=mood,
        title=title,
        detail=detail,
        attempt=record.get("attempt"),
    )


def _attempt_start(r: Doc) -> tuple[str, str, str]:
    remedies = ", ".join(spoken(item) for item in r.get("remedies") or ())
    because = str(r.get("because") or "")
    return (
        f"attempt {r.get('attempt')} started",
        f"{because}{'; remedy: ' if remedies else ''}{remedies}",
        "busy",
    )


def _attempt_end(r: Doc) -> tuple[str, str, str]:
    cause = "" if r.get("cause") in (None, "none") else f" ({r['cause']})"
    parts = [f"at step {count(r['step'])}" if r.get("step") is not None else "before its first step"]
    if r.get("signal") is not None:
        parts.append(f"signal {r['signal']}")
    elif r.get("code") is not None:
        parts.append(f"exit code {r['code']}")
    if r.get("checkpoint_step") is not None:
        parts.append(f"checkpoint {count(r['checkpoint_step'])}")
    line = f": {plain(str(r['key_line']))}" if r.get("key_line") else ""
    title = f"attempt {r.get('attempt')} ended: {spoken(r.get('verdict'))}{cause}"
    return title, ", ".join(parts) + line, tone(r.get("verdict"))


def _verdict(r: Doc) -> tuple[str, str, str]:
    suspected = bool(r.get("suspected"))
    word = spoken(r.get("verdict")) + (" suspected" if suspected else "")
    return word, str(r.get("sentence") or ""), tone(r.get("verdict"), suspected=suspected)


def _incident(r: Doc) -> tuple[str, str, str]:
    inner = r.get("incident")
    item = incident_view(inner if isinstance(inner, dict) else r)
    return f"incident {item.state}: {item.title}", f"{item.sentence} {item.response}".strip(), item.tone


def _action(r: Doc) -> tuple[str, str, str]:
    return f"action: {spoken(str(r.get('type') or ''))}", f"because {r.get('because') or 'nothing was given'}", "busy"


def _outcome(r: Doc) -> tuple[str, str, str]:
    ok = r.get("ok")
    word, mood = ("done", "ok") if ok else ("failed", "bad") if ok is False else ("unknown", "unknown")
    return f"outcome: {spoken(str(r.get('type') or ''))} {word}", str(r.get("detail") or ""), mood


def _spec(r: Doc) -> tuple[str, str, str]:
    goal = r.get("goal") or {}
    return f"goal: {goal.get('want', '?')}", f"generation {r.get('generation', '?')}, accepted by the host", "off"


def _note(r: Doc) -> tuple[str, str, str]:
    return "note", str(r.get("text") or ""), "off"


def _agent_start(r: Doc) -> tuple[str, str, str]:
    return "agent started", str((r.get("machine") or {}).get("hostname") or ""), "off"


_WRITERS: dict[str, Callable[[Doc], tuple[str, str, str]]] = {
    "attempt_start": _attempt_start,
    "attempt_end": _attempt_end,
    "verdict": _verdict,
    "incident": _incident,
    "action": _action,
    "outcome": _outcome,
    "spec": _spec,
    "note": _note,
    "agent_start": _agent_start,
}
