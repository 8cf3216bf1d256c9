"""The outbox seen from a channel: what is due, what came of it. Each function runs in the caller's transaction."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, and_, func, insert, or_, select, update

from dflash_supervise.store import tables as t

Doc = dict[str, Any]


def register(connection: Connection, channel: str) -> None:
    """A channel that is new hears from now on, not the history. One that was off is tried again."""
    off = update(t.channels).where(t.channels.c.name == channel).values(off_reason=None, off_at=None)
    if connection.execute(off).rowcount == 0:
        newest = connection.scalar(select(func.max(t.outbox.c.id))) or 0
        connection.execute(insert(t.channels).values(name=channel, since_id=newest))


def due(connection: Connection, channel: str, now: float) -> Doc | None:
    """The oldest message this channel has not got, if its time has come; messages stay in order."""
    of_channel = and_(t.deliveries.c.message == t.outbox.c.id, t.deliveries.c.channel == channel)
    query = (
        select(t.outbox, t.deliveries.c.tries, t.deliveries.c.next_at)
        .select_from(t.outbox)
        .join(t.channels, t.channels.c.name == channel)
        .outerjoin(t.deliveries, of_channel)
        .where(t.outbox.c.id > t.channels.c.since_id)
        .where(t.channels.c.off_at.is_(None))
        .where(or_(t.deliveries.c.message.is_(None), t.deliveries.c.done_at.is_(None)))
        .order_by(t.outbox.c.id)
        .limit(1)
    )
    row = connection.execute(query).mappings().one_or_none()
    if row is None or (row["next_at"] or 0.0) > now:
        return None
    return {
        "id": row["id"],
        "key": row["key"],
        "run": row["run"],
        "kind": row["kind"],
        "severity": row["severity"],
        "created_at": row["created_at"],
        "facts": json.loads(row["facts"]),
        "tries": row["tries"] or 0,
    }


def delivered(connection: Connection, message: int, channel: str, now: float, error: str | None) -> None:
    """The channel is done with the message. With ``error`` it gave up on it."""
    _put(connection, message, channel, done_at=now, next_at=now, error=error)


def failed(connection: Connection, message: int, channel: str, next_at: float, error: str) -> None:
    _put(connection, message, channel, done_at=None, next_at=next_at, error=error)


def switch_off(connection: Connection, channel: str, now: float, reason: str) -> None:
    connection.execute(update(t.channels).where(t.channels.c.name == channel).values(off_reason=reason, off_at=now))


def channels(connection: Connection) -> list[Doc]:
    """Every channel with what is still waiting for it and why it is off, if it is."""
    found = []
    for row in connection.execute(select(t.channels).order_by(t.channels.c.name)).mappings():
        mine = (t.deliveries.c.channel == row["name"]) & t.deliveries.c.done_at.is_not(None)
        done = select(t.deliveries.c.message).where(mine)
        waiting = select(func.count()).where(t.outbox.c.id > row["since_id"], t.outbox.c.id.not_in(done))
        error = (
            select(t.deliveries.c.error)
            .where(t.deliveries.c.channel == row["name"], t.deliveries.c.error.is_not(None))
            .order_by(t.deliveries.c.message.desc())
            .limit(1)
        )
        found.append(
            {
                "channel": row["name"],
                "waiting": connection.scalar(waiting) or 0,
                "off_reason": row["off_reason"],
                "last_error": connection.scalar(error),
            }
        )
    return found


def messages(connection: Connection, limit: int) -> list[Doc]:
    """The newest messages, newest first."""
    query = select(t.outbox).order_by(t.outbox.c.id.desc()).limit(limit)
    return [
        {
            **{key: row[key] for key in ("id", "key", "run", "kind", "severity", "created_at")},
            **json.loads(row["facts"]),
        }
        for row in connection.execute(query).mappings()
    ]


def _put(connection: Connection, message: int, channel: str, **values: Any) -> None:
    where = (t.deliveries.c.message == message) & (t.deliveries.c.channel == channel)
    more = {**values, "tries": t.deliveries.c.tries + 1}
    if connection.execute(update(t.deliveries).where(where).values(**more)).rowcount == 0:
        connection.execute(insert(t.deliveries).values(message=message, channel=channel, tries=1, **values))
