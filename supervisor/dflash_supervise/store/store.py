"""The store: one writer at a time, one transaction a call, plain documents out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import delete, func, insert, make_url, or_, select, update

from dflash_supervise.store import apply, fleet, queue
from dflash_supervise.store import tables as t
from dflash_supervise.store.logs import LogFiles
from dflash_supervise.store.open import open_engine
from dflash_supervise.store.reading import Reading

Doc = dict[str, Any]

HEARTBEATS_KEPT_S = 3600.0


class NoSuchRun(KeyError):
    """No run has this id."""


class Store(Reading):
    """Everything the daemon remembers.

    Args:
        url: SQLAlchemy URL; SQLite only.
        logs: where log bytes lie; beside the database when left out.
        clock: seconds since 1970 of this machine.
    """

    def __init__(self, url: str, *, logs: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        database = make_url(url).database
        super().__init__(open_engine(url), LogFiles(logs or Path(database or ".").parent / "logs"), clock)

    # ---------------------------------------------------------------- runs and goals

    def add_run(
        self, spec: Mapping[str, Any], *, host: str, target: str, tell_from: int = 0, delivered: int = 0
    ) -> None:
        """A new run with the spec as it will be handed to the host (or was, up to ``delivered``).

        Who starts anew in a workspace has answered what runs that ended there waited for.
        """
        now = self._clock()
        with self._write() as connection:
            fleet.put_host(connection, host, target, now)
            fleet.close_ended(connection, host, spec["workspace"], now)
            connection.execute(
                insert(t.runs).values(
                    id=spec["run_id"],
                    name=spec["name"],
                    host=host,
                    target=target,
                    workspace=spec["workspace"],
                    kind=spec["kind"],
                    spec=json.dumps(dict(spec)),
                    generation=spec["generation"],
                    acknowledged=0,
                    delivered=delivered,
                    goal_since_at=now,
                    created_at=now,
                    tell_from=tell_from,
                    final=False,
                    silent_told=False,
                )
            )

    def remove_run(self, run_id: str) -> None:
        """Forget a run that never reached its host."""
        with self._write() as connection:
            for table in (t.records, t.epochs, t.attempts, t.incidents, t.outbox):
                connection.execute(delete(table).where(table.c.run == run_id))
            connection.execute(delete(t.runs).where(t.runs.c.id == run_id))

    def spec(self, run_id: str) -> Doc:
        """The spec as last wanted, with what the host is known to hold beside it.

        Returns:
            {"spec", "delivered", "acknowledged", "host", "target", "owner_elsewhere", "final"}
        Raises:
            NoSuchRun
        """
        with self._read() as connection:
            row = connection.execute(select(t.runs).where(t.runs.c.id == run_id)).mappings().one_or_none()
        if row is None:
            raise NoSuchRun(run_id)
        keys = ("delivered", "acknowledged", "host", "target", "owner_elsewhere", "final", "created_at")
        return {"spec": json.loads(row["spec"]), **{key: row[key] for key in keys}}

    def put_spec(self, spec: Mapping[str, Any], *, tell_from: int | None = None) -> None:
        """What is wanted now. A restart opens a run that was over."""
        values: Doc = {
            "spec": json.dumps(dict(spec)),
            "generation": spec["generation"],
            "goal_since_at": self._clock(),
        }
        if tell_from is not None:
            values.update(tell_from=tell_from, owner_elsewhere=None)
        if apply.asks_for_another(spec["goal"]):
            values["final"] = False
        self._update_run(spec["run_id"], values)

    def reclose(self, run_id: str, over: bool) -> None:
        """Whether a run is over is as it was before a restart that was taken back."""
        self._update_run(run_id, {"final": over})

    def set_delivered(self, run_id: str, generation: int) -> None:
        self._update_run(run_id, {"delivered": generation})

    def set_owner_elsewhere(self, run_id: str, owner: str) -> None:
        self._update_run(run_id, {"owner_elsewhere": owner})

    def end_undelivered(self, run_id: str, sentence: str) -> None:
        """Close a run whose spec never reached the host: the start was cut short and nothing was launched."""
        verdict = {
            "kind": "verdict",
            "attempt": 0,
            "verdict": "ended_unclear",
            "cause": "none",
            "sentence": sentence,
            "final": True,
        }
        self._update_run(run_id, {"final": True, "verdict": json.dumps(verdict), "attempt": 0})

    def highest_attempt(self, run_id: str) -> int:
        """The highest attempt we ever heard of: a host that knows fewer has lost its history."""
        with self._read() as connection:
            query = select(func.max(t.attempts.c.attempt)).where(t.attempts.c.run == run_id)
            return connection.scalar(query) or 0

    def live_runs(self, *, ended_within_s: float = 0.0) -> list[Doc]:
        """Runs that are not over, or not for long: {"id", "host", "target", "workspace", "delivered", ...}."""
        wanted = (
            t.runs.c.id,
            t.runs.c.host,
            t.runs.c.target,
            t.runs.c.workspace,
            t.runs.c.generation,
            t.runs.c.delivered,
            t.runs.c.owner_elsewhere,
            t.runs.c.news_at,
            t.runs.c.created_at,
            t.runs.c.goal_since_at,
            t.runs.c.silent_since_at,
            t.runs.c.silent_told,
        )
        live = t.runs.c.final.is_(False)
        lately = t.runs.c.news_at > self._clock() - ended_within_s
        which = or_(live, lately) if ended_within_s > 0 else live
        with self._read() as connection:
            return [dict(row) for row in connection.execute(select(*wanted).where(which)).mappings()]

    # ---------------------------------------------------------------- what hosts say

    def apply(self, run_id: str, records: Sequence[Mapping[str, Any]], *, age_s: float = 0.0) -> int:
        """Store records in one transaction, with everything that follows from them; how many were new.

        Args:
            age_s: how old the newest of them is, as far as the host's clock tells.
        Raises:
            NoSuchRun
        """
        now = self._clock()
        with self._write() as connection:
            state = apply.load_state(connection, run_id)
            if state is None:
                raise NoSuchRun(run_id)
            newest_t_s = max((record["t_s"] for record in records), default=0.0)
            count = 0
            for record in records:
                said_at = now - age_s - max(0.0, newest_t_s - record["t_s"])
                count += apply.apply_record(connection, state, record, said_at=said_at, received_at=now)
            apply.save_state(connection, state)
        return count

    def cursor(self, run_id: str) -> Doc | None:
        """{"epoch", "seq"} of the newest record that is stored; None before the first."""
        columns = (t.runs.c.cursor_epoch, t.runs.c.cursor_seq)
        with self._read() as connection:
            row = connection.execute(select(*columns).where(t.runs.c.id == run_id)).one_or_none()
        return None if row is None or row[0] is None else {"epoch": row[0], "seq": row[1]}

    def log_cursor(self, run_id: str) -> Doc | None:
        """{"attempt", "offset"} from which log bytes are wanted; None before the first byte."""
        attempt = self.logs.newest_attempt(run_id)
        return None if attempt is None else {"attempt": attempt, "offset": self.logs.size(run_id, attempt)}

    def append_log(self, run_id: str, attempt: int, offset: int, data: bytes) -> None:
        self.logs.append(run_id, attempt, offset, data)

    def put_host(self, host: str, target: str) -> None:
        with self._write() as connection:
            fleet.put_host(connection, host, target, self._clock())

    def set_link(
        self,
        host: str,
        status: str,
        error: Mapping[str, Any] | None = None,
        *,
        hello: Mapping[str, Any] | None = None,
    ) -> None:
        """A link is connecting, ready (with what the agent said of its machine) or unreachable (with why)."""
        with self._write() as connection:
            fleet.set_link(connection, host, status, error, self._clock())
            if hello is not None:
                fleet.put_machine(connection, host, hello)

    def links_unknown(self) -> None:
        """At start: nothing is connected yet. What was unreachable stays so until a link says otherwise."""
        with self._write() as connection:
            ready = update(t.hosts).where(t.hosts.c.status == "ready")
            connection.execute(ready.values(status="connecting", since_at=self._clock()))

    def tell(self, what: str, *, host: str, run_id: str = "") -> None:
        """Do one of the store's part of ``core.fleet`` actions."""
        now = self._clock()
        with self._write() as connection:
            match what:
                case "tell_unreachable":
                    fleet.tell_unreachable(connection, host, now)
                case "tell_reachable":
                    fleet.tell_reachable(connection, host, now)
                case "mark_silent":
                    fleet.mark_silent(connection, run_id, now)
                case "clear_silent":
                    fleet.mark_silent(connection, run_id, None)
                case "tell_silent":
                    fleet.tell_silent(connection, run_id, now)
                case _:
                    raise AssertionError(what)

    def remind(self, *, every_s: float, most: int) -> int:
        with self._write() as connection:
            return fleet.remind(connection, every_s, most, self._clock())

    def host_rows(self) -> list[Doc]:
        """{"key", "status", "since_at", "told", "target"} of every host."""
        columns = (t.hosts.c.key, t.hosts.c.target, t.hosts.c.status, t.hosts.c.since_at, t.hosts.c.told)
        with self._read() as connection:
            return [dict(row) for row in connection.execute(select(*columns)).mappings()]

    def thin(self, *, fine_s: float, keep_s: float) -> int:
        """Drop observations beyond what the charts need, never verdicts, incidents or actions; how many."""
        now, rows = self._clock(), t.records.c
        fine = (rows.kind == "observation") & rows.coarse.is_(False) & (rows.received_at < now - fine_s)
        old = (rows.kind == "observation") & rows.coarse.is_(True) & (rows.received_at < now - keep_s)
        beats = (rows.kind == "heartbeat") & (rows.received_at < now - HEARTBEATS_KEPT_S)
        with self._write() as connection:
            return sum(connection.execute(delete(t.records).where(where)).rowcount for where in (fine, old, beats))

    # ---------------------------------------------------------------- the outbox

    def register_channel(self, channel: str) -> None:
        """A new channel hears from now on; one that was off is tried again."""
        with self._write() as connection:
            queue.register(connection, channel)

    def delivered(self, message: int, channel: str, error: str | None = None) -> None:
        with self._write() as connection:
            queue.delivered(connection, message, channel, self._clock(), error)

    def failed(self, message: int, channel: str, *, in_s: float, error: str) -> None:
        with self._write() as connection:
            queue.failed(connection, message, channel, self._clock() + in_s, error)

    def switch_off(self, channel: str, reason: str) -> None:
        with self._write() as connection:
            queue.switch_off(connection, channel, self._clock(), reason)

    # ----------------------------------------------------------------

    def _update_run(self, run_id: str, values: Mapping[str, Any]) -> None:
        with self._write() as connection:
            done = connection.execute(update(t.runs).where(t.runs.c.id == run_id).values(**values))
            if done.rowcount == 0:
                raise NoSuchRun(run_id)
