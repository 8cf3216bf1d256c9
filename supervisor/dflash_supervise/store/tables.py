"""Tables. Structured payloads are JSON text exactly as the host sent them; columns hold what is searched."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA = 1

metadata = MetaData()

meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", Text, nullable=False))

hosts = Table(
    "hosts",
    metadata,
    Column("key", String, primary_key=True),  # user@host:port, or local
    Column("target", String, nullable=False),
    Column("status", String, nullable=False),  # connecting, ready, unreachable
    Column("since_at", Float, nullable=False),  # this machine's clock
    Column("error", Text),
    Column("told", Boolean, nullable=False, default=False),  # a page about its silence is open
    Column("machine", Text),
    Column("capabilities", Text),
    Column("python", String),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("host", String, nullable=False),
    Column("target", String, nullable=False),
    Column("workspace", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("spec", Text, nullable=False),  # as last wanted; the host may be behind
    Column("generation", Integer, nullable=False),
    Column("acknowledged", Integer, nullable=False, default=0),  # generation of the last spec record
    Column("delivered", Integer, nullable=False, default=0),  # generation the host's files hold
    Column("goal_since_at", Float, nullable=False),
    Column("tell_from", Integer, nullable=False, default=0),  # messages only once this generation is accepted
    Column("owner_elsewhere", String),  # another supervisor took the run over: we only watch
    Column("created_at", Float, nullable=False),
    Column("cursor_epoch", String),
    Column("cursor_seq", Integer),
    Column("verdict", Text),  # payload of the last verdict record
    Column("view", Text),  # step, loss, GPUs... of the last observation
    Column("attempt", Integer),
    Column("news_at", Float),  # when the host said something last, by this machine's clock
    Column("final", Boolean, nullable=False, default=False),
    Column("silent_since_at", Float),  # agent silent although the link is ready
    Column("silent_told", Boolean, nullable=False, default=False),
)
Index("runs_by_host", runs.c.host)

# Observations are thinned, so what was seen of an epoch is remembered apart from its rows.
epochs = Table(
    "epochs",
    metadata,
    Column("run", String, primary_key=True),
    Column("epoch", String, primary_key=True),
    Column("last_seq", Integer, nullable=False),
)

records = Table(
    "records",
    metadata,
    Column("row", Integer, primary_key=True, autoincrement=True),
    Column("run", String, nullable=False),
    Column("epoch", String, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("kind", String, nullable=False),
    Column("t_s", Float, nullable=False),
    Column("at_s", Float, nullable=False),  # the host's wall clock as seconds since 1970
    Column("received_at", Float, nullable=False),
    Column("coarse", Boolean, nullable=False, default=False),  # the one of its 10 s that stays
    Column("payload", Text, nullable=False),
    Column("sample", Text),  # of an observation: what the charts draw
    UniqueConstraint("run", "epoch", "seq", name="records_once"),
    sqlite_autoincrement=True,  # row ids are event ids: never used twice
)
Index("records_by_kind", records.c.run, records.c.kind, records.c.row)
Index("records_to_thin", records.c.kind, records.c.coarse, records.c.received_at)

attempts = Table(
    "attempts",
    metadata,
    Column("run", String, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("started_at", String),
    Column("ended_at", String),
    Column("because", Text),
    Column("remedies", Text),
    Column("pid", Integer),
    Column("ending", Text),  # payload of attempt_end
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", String, primary_key=True),
    Column("run", String, nullable=False),
    Column("attempt", Integer),
    Column("cause", String, nullable=False),
    Column("severity", String, nullable=False),
    Column("state", String, nullable=False),
    Column("opened_at", String),  # the host's clock, to be shown
    Column("open_since_at", Float),  # this machine's clock, to be counted from
    Column("resolved_at", String),
    Column("updated_row", Integer, nullable=False),
    Column("payload", Text, nullable=False),
)
Index("incidents_by_run", incidents.c.run, incidents.c.state)

outbox = Table(
    "outbox",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False, unique=True),
    Column("run", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("severity", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("facts", Text, nullable=False),
    sqlite_autoincrement=True,
)
Index("outbox_by_run", outbox.c.run)

channels = Table(
    "channels",
    metadata,
    Column("name", String, primary_key=True),
    Column("since_id", Integer, nullable=False),  # messages up to this one are older than the channel
    Column("off_reason", Text),
    Column("off_at", Float),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("message", Integer, primary_key=True),
    Column("channel", String, primary_key=True),
    Column("tries", Integer, nullable=False),
    Column("next_at", Float, nullable=False),
    Column("done_at", Float),
    Column("error", Text),
)
