"""Opens the database: pragmas, transactions that never upgrade a lock, and migrations by number."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, make_url, select, update
from sqlalchemy.exc import SQLAlchemyError

from dflash_supervise.store import tables

BUSY_S = 20.0

# What the database raises when it cannot be read or written: locked for too long, a full disk, a broken file.
StoreError = SQLAlchemyError


def open_engine(url: str) -> Engine:
    """An engine whose write transactions take the lock at their begin.

    Raises:
        ValueError: a URL of a database that is not SQLite, or a file of a newer version of this program.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise ValueError(f"store.url: {parsed.get_backend_name()} is not supported yet; use sqlite:///path")
    if parsed.database:
        _private_file(Path(parsed.database))
    engine = create_engine(parsed, connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    migrate(engine)
    return engine


def migrate(engine: Engine) -> None:
    """Bring the schema up to this program's number; done twice it changes nothing."""
    with engine.connect() as connection:
        connection = connection.execution_options(write=True)
        with connection.begin():
            found = _schema(connection)
            if found > tables.SCHEMA:
                raise ValueError(
                    f"the database has schema {found} and this program knows {tables.SCHEMA}: use the newer version"
                )
            for number in range(found + 1, tables.SCHEMA + 1):
                MIGRATIONS[number](connection)
            _set_schema(connection, tables.SCHEMA)


def _first(connection: Connection) -> None:
    tables.metadata.create_all(connection)


MIGRATIONS: dict[int, Callable[[Connection], None]] = {1: _first}


def _schema(connection: Connection) -> int:
    if not inspect(connection).has_table("meta"):
        return 0
    value = connection.scalar(select(tables.meta.c.value).where(tables.meta.c.key == "schema"))
    return int(value) if value is not None else 0


def _set_schema(connection: Connection, number: int) -> None:
    done = connection.execute(update(tables.meta).where(tables.meta.c.key == "schema").values(value=str(number)))
    if done.rowcount == 0:
        connection.execute(insert(tables.meta).values(key="schema", value=str(number)))


def _private_file(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _on_connect(dbapi_connection: Any, _record: Any) -> None:
    # The driver's own idea of transactions begins them late; ours are begun by _on_begin.
    dbapi_connection.isolation_level = None
    cursor = dbapi_connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    # A power cut may roll back the last commits. All of them can be followed from the host again, and
    # a commit that survives is whole; FULL would cost an fsync for each batch.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _on_begin(connection: Connection) -> None:
    write = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
