"""``why``: a run, the verdict in force, and everything it rests on, each with its age."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from dflash_supervise.store import host_time, reads, shapes
from dflash_supervise.store.readings import readings, step_limit

Doc = dict[str, Any]

INCIDENTS = 100


def why(connection: Connection, run_id: str, now: float) -> Doc | None:
    """See ``Reading.why``."""
    run, row = reads.run(connection, run_id, now), reads.find(connection, run_id)
    if run is None or row is None:
        return None
    told = json.loads(row["verdict"]) if row["verdict"] else None
    incidents = reads.incident_rows(connection, row["id"], INCIDENTS)
    return {
        "run": run,
        "verdict": None if told is None else shapes.verdict_doc(told, host_time.watched_s(row, told)),
        "readings": _readings(connection, row, told or {}, run),
        "incidents": [
            {**shapes.incident_doc(one), "told_age_s": _age_s(connection, row, json.loads(one["payload"]), run)}
            for one in incidents
        ],
        "attempts": reads.attempts(connection, row["id"]),
        "age_s": run["news_age_s"],
    }


def _readings(connection: Connection, row: Mapping[str, Any], told: Mapping[str, Any], run: Doc) -> list[Doc]:
    found = reads.records(connection, row["id"], 0, ("observation",), 1, True)
    # What was read of an earlier attempt says nothing about this one.
    if not found or (found[0].get("obs", {}).get("attempt") or {}).get("number") != row["attempt"]:
        return []
    rows = readings(found[0], _age_s(connection, row, found[0], run))
    view, policy = json.loads(row["view"] or "{}"), json.loads(row["spec"]).get("policy") or {}
    limit = step_limit(told, view, policy, run["verdict_age_s"])
    at = next((place for place, one in enumerate(rows, 1) if one["what"] == "step"), len(rows))
    return rows if limit is None else [*rows[:at], limit, *rows[at:]]


def _age_s(connection: Connection, row: Mapping[str, Any], record: Mapping[str, Any], run: Doc) -> float | None:
    since_s = host_time.since_s(connection, row, record)
    return None if since_s is None or run["news_age_s"] is None else since_s + run["news_age_s"]
