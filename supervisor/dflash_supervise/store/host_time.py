"""How much host time lies between one of a run's records and the host's last word about the run.

By the host's own boot-time clock, so no two machines' clocks are compared. That clock begins anew when the machine
does: what was told on another boot is of unknown age.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from dflash_supervise.store import tables as t

Doc = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Since:
    """Host seconds up to its last word about a run; None where nobody can say."""

    verdict_s: float | None = None  # from the verdict in force
    goal_s: float | None = None  # from the moment at which the goal in force was accepted


def of_run(connection: Connection, row: Mapping[str, Any]) -> Since:
    """Both for the row of a run. Of the goal only a hold has an end, so only a hold is looked for."""
    told = json.loads(row["verdict"]) if row["verdict"] else None
    return Since(
        verdict_s=None if told is None else since_s(connection, row, told),
        goal_s=_accepted_s(connection, row),
    )


def since_s(connection: Connection, row: Mapping[str, Any], record: Mapping[str, Any]) -> float | None:
    """Host seconds from a record of the run to the newest record."""
    heard = _heard_t_s(row)
    if heard is None or "t_s" not in record:  # what this machine wrote itself is on no host's clock
        return None
    if not _same_boot(connection, row["id"], record["epoch"], row["cursor_epoch"]):
        return None
    return max(0.0, heard - float(record["t_s"]))


def watched_s(row: Mapping[str, Any], record: Mapping[str, Any]) -> float:
    """Host seconds for which the agent that wrote a record has observed the run after it: 0 when another one does."""
    seen = json.loads(row["view"] or "{}").get("t_s")
    if seen is None or "t_s" not in record or record["epoch"] != row["cursor_epoch"]:
        return 0.0
    return max(0.0, float(seen) - float(record["t_s"]))


def _heard_t_s(row: Mapping[str, Any]) -> float | None:
    view = json.loads(row["view"] or "{}")
    heard = view.get("heard_t_s", view.get("t_s"))
    return None if heard is None else float(heard)


def _same_boot(connection: Connection, run: str, one: str, other: str | None) -> bool:
    if one == other:
        return True  # no agent outlives a boot
    query = select(t.records.c.epoch, t.records.c.payload).where(
        (t.records.c.run == run) & (t.records.c.kind == "agent_start") & t.records.c.epoch.in_((one, other))
    )
    boots = {epoch: (json.loads(text).get("machine") or {}).get("boot_id") for epoch, text in connection.execute(query)}
    return boots.get(one) is not None and boots.get(one) == boots.get(other)


def _accepted_s(connection: Connection, row: Mapping[str, Any]) -> float | None:
    goal = json.loads(row["spec"])["goal"]
    if goal["want"] != "hold" or goal.get("hold_for_s") is None or row["acknowledged"] < row["generation"]:
        return None
    query = select(t.records.c.payload).where((t.records.c.run == row["id"]) & (t.records.c.kind == "spec"))
    said = [json.loads(text) for text in connection.scalars(query.order_by(t.records.c.row))]
    mine = [record for record in said if record.get("generation") == row["generation"]]
    # Each agent says again what it finds. A hold that a new boot cut begins anew with the agent that finds it.
    known = (since_s(connection, row, record) for record in (*mine[:1], *mine[-1:]))
    return next((found for found in known if found is not None), None)
