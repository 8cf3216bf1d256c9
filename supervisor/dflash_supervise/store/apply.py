"""One record into the database: its row, and what it changes in the run's current view."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select, update

from dflash_supervise.core import outbox
from dflash_supervise.store import tables as t
from dflash_supervise.store import view as views

Doc = dict[str, Any]

COARSE_S = 10.0
# Thinned kinds: their rows may be gone, so only the epoch's last number says whether one was seen.
THINNED = frozenset({"observation", "heartbeat"})


@dataclass
class RunState:
    """The row of the run that a batch changes; written once at the end of the transaction."""

    row: Doc
    view: Doc | None
    verdict: Doc | None
    told: set[str] | None = None  # keys of its messages, loaded when a record may tell something
    last_coarse: tuple[str, int] | None = None
    dirty: bool = False

    @property
    def spec(self) -> Doc:
        spec: Doc = json.loads(self.row["spec"])
        return spec


def load_state(connection: Connection, run_id: str) -> RunState | None:
    row = connection.execute(select(t.runs).where(t.runs.c.id == run_id)).mappings().one_or_none()
    if row is None:
        return None
    return RunState(
        row=dict(row),
        view=json.loads(row["view"]) if row["view"] else None,
        verdict=json.loads(row["verdict"]) if row["verdict"] else None,
    )


def apply_record(
    connection: Connection, state: RunState, record: Mapping[str, Any], *, said_at: float, received_at: float
) -> bool:
    """Store one record; False when it was there before.

    Args:
        said_at: when the host wrote it, by this machine's clock.
        received_at: now, by this machine's clock.
    """
    run, epoch, seq = state.row["id"], record["epoch"], record["seq"]
    if not _is_new(connection, run, record):
        return False
    cursor = (state.row["cursor_epoch"] or "", state.row["cursor_seq"] or 0)
    newest = (epoch, seq) > cursor
    if newest and record["kind"] == "observation":
        state.view = views.current(record, state.view)
    row_id = _insert(connection, state, record, received_at)
    if newest:
        # The host's clock at its last word: observations are thinned, and heartbeats leave no view.
        state.view = {**(state.view or {}), "heard_t_s": record["t_s"]}
        state.row.update(cursor_epoch=epoch, cursor_seq=seq)
        state.row["news_at"] = max(said_at, state.row["news_at"] or said_at)
    state.dirty = True
    _project(connection, state, record, row_id, newest=newest, said_at=said_at)
    if record["kind"] in outbox.TELLING_KINDS:
        _tell(connection, state, record, received_at)
    return True


def _tell(connection: Connection, state: RunState, record: Mapping[str, Any], now: float) -> None:
    if state.told is None:
        state.told = told_keys(connection, state.row["id"])
    for telling in outbox.tell(record, run_facts(state), state.told):
        put_message(connection, state.row["id"], telling, now)
        state.told.add(telling.key)


def told_keys(connection: Connection, run_id: str) -> set[str]:
    """Keys of all messages of a run, without the run's own name."""
    keys = connection.scalars(select(t.outbox.c.key).where(t.outbox.c.run == run_id))
    return {key[len(run_id) + 1 :] for key in keys}


_KEPT = (
    "cursor_epoch",
    "cursor_seq",
    "news_at",
    "attempt",
    "final",
    "acknowledged",
    "delivered",
    "owner_elsewhere",
)


def save_state(connection: Connection, state: RunState) -> None:
    if not state.dirty:
        return
    changed = {key: state.row[key] for key in _KEPT}
    changed["view"] = json.dumps(state.view) if state.view else None
    changed["verdict"] = json.dumps(state.verdict) if state.verdict else None
    connection.execute(update(t.runs).where(t.runs.c.id == state.row["id"]).values(**changed))


def put_message(connection: Connection, run_id: str, telling: outbox.Telling, now: float) -> None:
    """Into the outbox, in the transaction of what it tells about. The key makes it once."""
    connection.execute(
        insert(t.outbox).values(
            key=f"{run_id}/{telling.key}",
            run=run_id,
            kind=telling.kind,
            severity=telling.severity,
            created_at=now,
            facts=json.dumps(dict(telling.facts)),
        )
    )


def run_facts(state: RunState) -> outbox.RunFacts:
    view, row = state.view or {}, state.row
    return outbox.RunFacts(
        run_id=row["id"],
        name=row["name"],
        host=row["host"],
        kind=row["kind"],
        want=state.spec["goal"]["want"],
        step=view.get("step"),
        steps_total=view.get("steps_total"),
        checkpoint_step=view.get("checkpoint_step"),
        loss=view.get("loss"),
        tau=view.get("tau"),
        gpus=len(view.get("gpus", [])),
        final=bool(row["final"]),
        muted=row["acknowledged"] < row["tell_from"],
    )


def _is_new(connection: Connection, run: str, record: Mapping[str, Any]) -> bool:
    epoch, seq = record["epoch"], record["seq"]
    where = (t.epochs.c.run == run) & (t.epochs.c.epoch == epoch)
    last = connection.scalar(select(t.epochs.c.last_seq).where(where))
    if last is None:
        connection.execute(insert(t.epochs).values(run=run, epoch=epoch, last_seq=seq))
        return True
    if seq > last:
        connection.execute(update(t.epochs).where(where).values(last_seq=seq))
        return True
    if record["kind"] in THINNED:
        return False
    known = select(t.records.c.row).where(
        (t.records.c.run == run) & (t.records.c.epoch == epoch) & (t.records.c.seq == seq)
    )
    return connection.scalar(known) is None


def _insert(connection: Connection, state: RunState, record: Mapping[str, Any], received_at: float) -> int:
    is_observation = record["kind"] == "observation"
    bucket = (record["epoch"], int(record["t_s"] // COARSE_S))
    coarse = not is_observation or bucket != state.last_coarse
    if is_observation:
        state.last_coarse = bucket
    done = connection.execute(
        insert(t.records).values(
            run=state.row["id"],
            epoch=record["epoch"],
            seq=record["seq"],
            kind=record["kind"],
            t_s=record["t_s"],
            at_s=views.unix(record["at"]),
            received_at=received_at,
            coarse=coarse,
            payload=json.dumps(record, separators=(",", ":")),
            sample=json.dumps(views.sample(state.view)) if is_observation and state.view else None,
        )
    )
    assert done.inserted_primary_key is not None
    return int(done.inserted_primary_key[0])


def _project(
    connection: Connection, state: RunState, record: Mapping[str, Any], row_id: int, *, newest: bool, said_at: float
) -> None:
    match record["kind"]:
        case "verdict" if newest:
            state.verdict = dict(record)
            state.row["final"] = bool(record.get("final"))
            state.row["attempt"] = record.get("attempt", state.row["attempt"])
        case "attempt_start":
            _put_attempt(
                connection,
                state,
                record,
                started_at=record["at"],
                because=record.get("because", ""),
                remedies=json.dumps(record.get("remedies", [])),
                pid=record.get("pid"),
            )
            if newest:
                state.row["attempt"] = record["attempt"]
        case "attempt_end":
            _put_attempt(connection, state, record, ended_at=record["at"], ending=json.dumps(record))
        case "incident":
            _put_incident(connection, state, record, row_id, said_at)
        case "spec":
            _accepted(state, record)
        case "agent_start":
            _put_machine(connection, state, record)


def _put_attempt(connection: Connection, state: RunState, record: Mapping[str, Any], **values: Any) -> None:
    run, attempt = state.row["id"], record["attempt"]
    where = (t.attempts.c.run == run) & (t.attempts.c.attempt == attempt)
    if connection.execute(update(t.attempts).where(where).values(**values)).rowcount == 0:
        connection.execute(insert(t.attempts).values(run=run, attempt=attempt, **values))


def _put_incident(
    connection: Connection, state: RunState, record: Mapping[str, Any], row_id: int, said_at: float
) -> None:
    name = f"{state.row['id']}.{record['id']}"
    values: Doc = {
        "run": state.row["id"],
        "attempt": record.get("attempt"),
        "cause": record["cause"],
        "severity": record["severity"],
        "state": record["state"],
        "updated_row": row_id,
        "payload": json.dumps(record),
    }
    old = connection.execute(select(t.incidents).where(t.incidents.c.id == name)).mappings().one_or_none()
    # The first time it was seen in a state is when it entered it; evidence that comes again is no new opening.
    values["opened_at"] = old["opened_at"] if old and old["opened_at"] else None
    if values["opened_at"] is None and record["state"] == "open":
        values.update(opened_at=record["at"], open_since_at=said_at)
    values["resolved_at"] = record["at"] if record["state"] == "resolved" else None
    if old is None:
        connection.execute(insert(t.incidents).values(id=name, **values))
    else:
        connection.execute(update(t.incidents).where(t.incidents.c.id == name).values(**values))


def _accepted(state: RunState, record: Mapping[str, Any]) -> None:
    generation, owner = int(record["generation"]), record.get("owner")
    if owner and owner != state.spec.get("owner"):
        # Another supervisor's goal is in force. Older ones of its are history: the run was taken back since.
        if generation >= int(state.spec["generation"]):
            state.row["owner_elsewhere"] = owner
        return
    if generation < state.row["acknowledged"]:
        # The host forgot a newer goal, as after a reboot before a full disk took it: it is pending again.
        state.row["delivered"] = generation
    state.row["acknowledged"] = generation
    state.row["delivered"] = max(state.row["delivered"], generation)
    if asks_for_another(record.get("goal") or {}):
        state.row["final"] = False  # a newer verdict says when it is over again


def asks_for_another(goal: Mapping[str, Any]) -> bool:
    """Whether a goal is a restart, which names an attempt; a plain ``run`` only ends a hold."""
    return goal.get("want") == "run" and goal.get("end_attempt") is not None


def _put_machine(connection: Connection, state: RunState, record: Mapping[str, Any]) -> None:
    values = {
        "machine": json.dumps(record.get("machine", {})),
        "capabilities": json.dumps(record.get("capabilities", [])),
        "python": (record.get("agent") or {}).get("python"),
    }
    connection.execute(update(t.hosts).where(t.hosts.c.key == state.row["host"]).values(**values))
