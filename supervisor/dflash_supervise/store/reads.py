"""What is read: each function is one consistent look in a read transaction, given as the API's documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, case, func, select

from dflash_supervise.store import host_time, shapes
from dflash_supervise.store import tables as t
from dflash_supervise.store import view as views

Doc = dict[str, Any]

_OPEN_FIRST = case((t.incidents.c.state == "open", 0), (t.incidents.c.state == "pending", 1), else_=2)


def runs(connection: Connection, now: float) -> list[Doc]:
    """All runs, those that are not over first, then the newest first."""
    found = connection.execute(select(t.runs).order_by(t.runs.c.final, t.runs.c.created_at.desc()))
    hosts, open_counts, meant = _hosts(connection), _open_counts(connection), _meant(connection)
    docs = []
    for row in map(dict, found.mappings().all()):
        since, count = host_time.of_run(connection, row), open_counts.get(row["id"], 0)
        doc = shapes.run_doc(row, hosts.get(row["host"]), count, now, since)
        docs.append({**doc, "name_unique": meant[row["name"]] == 1})
    return docs


def run(connection: Connection, name: str, now: float) -> Doc | None:
    row = find(connection, name)
    if row is None:
        return None
    host, count = _hosts(connection).get(row["host"]), _open_counts(connection).get(row["id"], 0)
    doc = shapes.run_doc(row, host, count, now, host_time.of_run(connection, row))
    return {**doc, "name_unique": _meant(connection)[row["name"]] == 1}


def find(connection: Connection, name: str) -> Mapping[str, Any] | None:
    """The row of a run by its id, or of the newest run of that name."""
    by_name = select(t.runs).where(t.runs.c.name == name).order_by(t.runs.c.created_at.desc()).limit(1)
    by_id = connection.execute(select(t.runs).where(t.runs.c.id == name)).mappings().one_or_none()
    found = by_id or connection.execute(by_name).mappings().one_or_none()
    return dict(found) if found else None


def incidents(connection: Connection, run_id: str | None, limit: int) -> list[Doc]:
    return [shapes.incident_doc(row) for row in incident_rows(connection, run_id, limit)]


def incident_rows(connection: Connection, run_id: str | None, limit: int) -> list[Doc]:
    """Open ones first, then pending, then resolved; newest first."""
    query = select(t.incidents).order_by(_OPEN_FIRST, t.incidents.c.updated_row.desc()).limit(limit)
    if run_id is not None:
        query = query.where(t.incidents.c.run == run_id)
    return [dict(row) for row in connection.execute(query).mappings()]


def incident(connection: Connection, incident_id: str) -> Doc | None:
    query = select(t.incidents).where(t.incidents.c.id == incident_id)
    row = connection.execute(query).mappings().one_or_none()
    return shapes.incident_doc(dict(row)) if row else None


def records(
    connection: Connection, run_id: str, after: int, kinds: Sequence[str], limit: int, newest: bool
) -> list[Doc]:
    query = select(t.records).where((t.records.c.run == run_id) & (t.records.c.row > after))
    if kinds:
        query = query.where(t.records.c.kind.in_(kinds))
    order = t.records.c.row.desc() if newest else t.records.c.row
    found = [shapes.record_doc(dict(row)) for row in connection.execute(query.order_by(order).limit(limit)).mappings()]
    return found[::-1] if newest else found


def feed(connection: Connection, after: int, limit: int) -> list[Doc]:
    query = select(t.records).where(t.records.c.row > after).order_by(t.records.c.row).limit(limit)
    return [
        {"row": row["row"], "run": row["run"], "record": shapes.record_doc(dict(row))}
        for row in connection.execute(query).mappings()
    ]


def last_row(connection: Connection) -> int:
    return connection.scalar(select(func.max(t.records.c.row))) or 0


def attempts(connection: Connection, run_id: str) -> list[Doc]:
    """The attempts of a run, oldest first, with how each ended."""
    query = select(t.attempts).where(t.attempts.c.run == run_id).order_by(t.attempts.c.attempt)
    found = []
    for row in connection.execute(query).mappings():
        ending = json.loads(row["ending"]) if row["ending"] else {}
        ended = {
            key: ending.get(key)
            for key in ("verdict", "cause", "key_line", "code", "signal", "step", "checkpoint_step", "ran_s")
        }
        begun = {key: row[key] for key in ("attempt", "started_at", "ended_at", "because", "pid")}
        found.append({**begun, "remedies": json.loads(row["remedies"] or "[]"), **ended})
    return found


def series(connection: Connection, run_id: str, since_s: float) -> Doc:
    """What the charts draw, ``since_s`` seconds back from the newest observation (one clock: the host's)."""
    mine = (t.records.c.run == run_id) & (t.records.c.kind == "observation")
    newest = connection.scalar(select(func.max(t.records.c.at_s)).where(mine))
    doc: Doc = {"t": [], "step": [], "loss": [], "tokens_per_s": [], "gpus": {}}
    if newest is None:
        return doc
    query = select(t.records.c.at_s, t.records.c.sample).where(mine & (t.records.c.at_s >= newest - since_s))
    rows = connection.execute(query.order_by(t.records.c.row)).all()
    samples = [(at_s, json.loads(text)) for at_s, text in rows if text]
    uuids = sorted({uuid for _at, sample in samples for uuid in sample["gpus"]})
    doc["t"] = [at_s for at_s, _sample in samples]
    doc["step"] = [sample["step"] for _at, sample in samples]
    doc["loss"] = [sample["loss"] for _at, sample in samples]
    doc["tokens_per_s"] = [sample["tps"] for _at, sample in samples]
    for uuid in uuids:
        triples = [sample["gpus"].get(uuid, [None, None, None]) for _at, sample in samples]
        util_pct, power_w, work = (list(column) for column in zip(*triples, strict=True))
        doc["gpus"][uuid] = {"util_pct": util_pct, "power_w": power_w, "class": work}
    return doc


def hosts(connection: Connection, now: float) -> list[Doc]:
    found = []
    for row in connection.execute(select(t.hosts).order_by(t.hosts.c.key)).mappings():
        mine = select(t.runs.c.id).where(t.runs.c.host == row["key"]).order_by(t.runs.c.created_at.desc())
        found.append(
            {
                "host": row["key"],
                "target": row["target"],
                "status": row["status"],
                "since_at": views.rfc3339(row["since_at"]),
                "age_s": max(0.0, now - row["since_at"]),
                "error": json.loads(row["error"]) if row["error"] else None,
                "machine": json.loads(row["machine"]) if row["machine"] else None,
                "capabilities": json.loads(row["capabilities"]) if row["capabilities"] else [],
                "python": row["python"],
                "runs": list(connection.scalars(mine)),
            }
        )
    return found


def _hosts(connection: Connection) -> dict[str, Mapping[str, Any]]:
    return {row["key"]: dict(row) for row in connection.execute(select(t.hosts)).mappings()}


def _meant(connection: Connection) -> Counter[str]:
    """How many runs a person may mean by each word: a name, or an id that another run may have for its name."""
    rows = connection.execute(select(t.runs.c.id, t.runs.c.name))
    return Counter(word for run_id, name in rows for word in {run_id, name})


def _open_counts(connection: Connection) -> dict[str, int]:
    query = select(t.incidents.c.run, func.count()).where(t.incidents.c.state == "open").group_by(t.incidents.c.run)
    return {str(run_id): int(count) for run_id, count in connection.execute(query)}
