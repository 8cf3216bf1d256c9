"""What this machine itself knows about hosts and agents: link states, silence, and the messages about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from dflash_supervise.core import outbox
from dflash_supervise.store import apply, shapes
from dflash_supervise.store import tables as t
from dflash_supervise.store import view as views

Doc = dict[str, Any]


def put_host(connection: Connection, key: str, target: str, now: float) -> None:
    known = connection.execute(update(t.hosts).where(t.hosts.c.key == key).values(key=key))
    if known.rowcount == 0:
        connection.execute(insert(t.hosts).values(key=key, target=target, status="connecting", since_at=now))


def close_ended(connection: Connection, key: str, workspace: str, now: float) -> None:
    """The incidents of runs that are over in this workspace are resolved; nobody is told."""
    place = (t.runs.c.host == key) & (t.runs.c.workspace == workspace) & t.runs.c.final.is_(True)
    ended = t.incidents.c.run.in_(select(t.runs.c.id).where(place)) & (t.incidents.c.state != "resolved")
    values = {"state": "resolved", "resolved_at": views.rfc3339(now)}
    connection.execute(update(t.incidents).where(ended).values(**values))


def set_link(connection: Connection, key: str, status: str, error: Mapping[str, Any] | None, now: float) -> None:
    """A link changed its state. Reconnecting to a host that is unreachable is no change of what we know."""
    old = connection.execute(select(t.hosts).where(t.hosts.c.key == key)).mappings().one()
    if old["status"] == "unreachable" and status == "connecting":
        return
    values: Doc = {"status": status, "error": json.dumps(dict(error)) if error else None}
    if status != old["status"]:
        values["since_at"] = now
    connection.execute(update(t.hosts).where(t.hosts.c.key == key).values(**values))
    if status == "ready":
        _end_incidents(connection, key, now)
    elif status == "unreachable":
        _begin_incidents(connection, key, error or {}, values.get("since_at", old["since_at"]))


def put_machine(connection: Connection, key: str, hello: Mapping[str, Any]) -> None:
    values = {"machine": json.dumps(hello.get("machine") or {}), "python": hello.get("python")}
    connection.execute(update(t.hosts).where(t.hosts.c.key == key).values(**values))


def tell_unreachable(connection: Connection, key: str, now: float) -> None:
    """One page for the host, however many runs it has; their incidents open."""
    host = connection.execute(select(t.hosts).where(t.hosts.c.key == key)).mappings().one()
    live = _live(connection, key)
    pending = t.incidents.c.id.like("%.unreachable-%") & (t.incidents.c.state == "pending")
    of_host = t.incidents.c.run.in_([row["id"] for row in live])
    connection.execute(update(t.incidents).where(pending & of_host).values(state="open", opened_at=views.rfc3339(now)))
    connection.execute(update(t.hosts).where(t.hosts.c.key == key).values(told=True))
    error = json.loads(host["error"] or "{}")
    facts = {**_host_facts(key, live), "cause": shapes.unreachable_cause(error), "since_at": host["since_at"]}
    facts.update(sentence=error.get("message", ""), fix=error.get("fix", ""), silent_s=now - host["since_at"])
    _put(connection, key, f"unreachable/{host['since_at']:.3f}", "unreachable", "page", facts, now)


def tell_reachable(connection: Connection, key: str, now: float) -> None:
    host = connection.execute(select(t.hosts).where(t.hosts.c.key == key)).mappings().one()
    connection.execute(update(t.hosts).where(t.hosts.c.key == key).values(told=False))
    facts = _host_facts(key, _live(connection, key))
    _put(connection, key, f"reachable/{host['since_at']:.3f}", "reachable", "info", facts, now)


def mark_silent(connection: Connection, run_id: str, since: float | None) -> None:
    values = {"silent_since_at": since, "silent_told": False}
    connection.execute(update(t.runs).where(t.runs.c.id == run_id).values(**values))


def tell_silent(connection: Connection, run_id: str, now: float) -> None:
    state = apply.load_state(connection, run_id)
    assert state is not None
    since = state.row["silent_since_at"]
    connection.execute(update(t.runs).where(t.runs.c.id == run_id).values(silent_told=True))
    facts: Doc = {
        "run_id": run_id,
        "name": state.row["name"],
        "host": state.row["host"],
        "cause": "agent_silent",
        "silent_s": now - since,
    }
    telling = outbox.Telling(f"silent/{since:.3f}", "silent", "page", facts)
    if telling.key not in apply.told_keys(connection, run_id):
        apply.put_message(connection, run_id, telling, now)


def remind(connection: Connection, every_s: float, most: int, now: float) -> int:
    """Put the reminders that are due into the outbox; how many."""
    query = select(t.incidents).where((t.incidents.c.state == "open") & (t.incidents.c.severity == "page"))
    count = 0
    for row in connection.execute(query).mappings().all():
        state = apply.load_state(connection, row["run"])
        if state is None or state.row["final"] or ".unreachable-" in row["id"]:
            continue
        incident = json.loads(row["payload"])
        open_s = now - row["open_since_at"]
        for telling in outbox.remind(incident, apply.run_facts(state), open_s=open_s, every_s=every_s, most=most):
            if telling.key not in apply.told_keys(connection, row["run"]):
                apply.put_message(connection, row["run"], telling, now)
                count += 1
    return count


def _live(connection: Connection, key: str) -> list[Doc]:
    query = select(t.runs.c.id, t.runs.c.name, t.runs.c.attempt).where(
        (t.runs.c.host == key) & t.runs.c.final.is_(False)
    )
    return [dict(row) for row in connection.execute(query).mappings()]


def _host_facts(key: str, live: list[Doc]) -> Doc:
    return {"host": key, "runs": [row["name"] for row in live], "run_id": live[0]["id"] if live else ""}


def _put(connection: Connection, host: str, key: str, kind: str, severity: str, facts: Doc, now: float) -> None:
    full = f"host:{host}/{key}"
    if connection.scalar(select(t.outbox.c.id).where(t.outbox.c.key == full)) is None:
        apply.put_message(connection, f"host:{host}", outbox.Telling(key, kind, severity, facts), now)


def _begin_incidents(connection: Connection, key: str, error: Mapping[str, Any], since: float) -> None:
    for row in _live(connection, key):
        name = f"{row['id']}.unreachable-{since:.3f}"
        if connection.scalar(select(t.incidents.c.id).where(t.incidents.c.id == name)) is not None:
            continue
        cause = shapes.unreachable_cause(error)
        sentence = f"{key} does not answer: {error.get('message', 'no reason known')}"
        payload = {
            "id": f"unreachable-{since:.3f}",
            "verdict": "host_unreachable",
            "cause": cause,
            "sentence": sentence,
            "response": "wait",
            "response_text": "waiting: the run goes on by itself, and nothing is done on old news",
            "evidence": [{"what": "link error", "value": error.get("code", "unknown")}],
        }
        connection.execute(
            insert(t.incidents).values(
                id=name,
                run=row["id"],
                attempt=row["attempt"],
                cause=cause,
                severity="page",
                state="pending",
                updated_row=_newest_row(connection),
                payload=json.dumps(payload),
            )
        )


def _end_incidents(connection: Connection, key: str, now: float) -> None:
    unresolved = t.incidents.c.id.like("%.unreachable-%") & (t.incidents.c.state != "resolved")
    of_host = t.incidents.c.run.in_(select(t.runs.c.id).where(t.runs.c.host == key))
    values = {"state": "resolved", "resolved_at": views.rfc3339(now)}
    connection.execute(update(t.incidents).where(unresolved & of_host).values(**values))


def _newest_row(connection: Connection) -> int:
    return connection.scalar(select(t.records.c.row).order_by(t.records.c.row.desc()).limit(1)) or 0
