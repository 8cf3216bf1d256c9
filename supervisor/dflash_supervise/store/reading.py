"""The reading half of the store. Plain documents in the shapes of the API; safe from any thread."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine

from dflash_supervise.store import queue, reads, why
from dflash_supervise.store.logs import LogFiles, LogPart

Doc = dict[str, Any]

LOG_LIMIT_BYTES = 1024 * 1024


class Reading:
    """An open database and the logs beside it."""

    def __init__(self, engine: Engine, logs: LogFiles, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._writing = threading.Lock()
        self.logs = logs

    def close(self) -> None:
        self._engine.dispose()

    def runs(self) -> list[Doc]:
        with self._read() as connection:
            return reads.runs(connection, self._clock())

    def run(self, name: str) -> Doc | None:
        """A run by its id, or the newest run of that name."""
        with self._read() as connection:
            return reads.run(connection, name, self._clock())

    def why(self, run_id: str) -> Doc | None:
        """{"run", "verdict", "readings", "incidents", "attempts", "age_s"}; ``age_s`` is that of the host's last word.

        The verdict is as the host told it ``run.verdict_age_s`` ago (None: nobody can say): the ages of its evidence
        and the seconds in its ``next`` count from then. Only ``held_s`` of what it suspects has gone on, by the time
        for which the host has watched since. ``readings`` are rows like evidence, from the newest observation, their
        ages as of now; None is not known. ``told_age_s`` of an incident is the age of what it says.
        """
        with self._read() as connection:
            return why.why(connection, run_id, self._clock())

    def records(
        self,
        run_id: str,
        *,
        after: int = 0,
        kinds: Sequence[str] = (),
        limit: int = 500,
        newest: bool = False,
    ) -> list[Doc]:
        """Records in ascending order of ``row``; with ``newest`` the last ``limit`` instead of the first."""
        with self._read() as connection:
            return reads.records(connection, run_id, after, kinds, limit, newest)

    def attempts(self, run_id: str) -> list[Doc]:
        with self._read() as connection:
            return reads.attempts(connection, run_id)

    def series(self, run_id: str, *, since_s: float = 1800.0) -> Doc:
        with self._read() as connection:
            return reads.series(connection, run_id, since_s)

    def incidents(self, run_id: str | None = None, *, limit: int = 200) -> list[Doc]:
        """Open first, then pending, then resolved, newest first."""
        with self._read() as connection:
            return reads.incidents(connection, run_id, limit)

    def incident(self, incident_id: str) -> Doc | None:
        with self._read() as connection:
            return reads.incident(connection, incident_id)

    def hosts(self) -> list[Doc]:
        with self._read() as connection:
            return reads.hosts(connection, self._clock())

    def last_row(self) -> int:
        with self._read() as connection:
            return reads.last_row(connection)

    def feed(self, after: int, limit: int = 500) -> list[Doc]:
        """[{"row", "run", "record"}] of all runs, ascending."""
        with self._read() as connection:
            return reads.feed(connection, after, limit)

    def log(
        self,
        run_id: str,
        *,
        attempt: int | None = None,
        offset: int | None = None,
        limit: int = 65536,
        tail: int | None = None,
    ) -> Doc | None:
        """{"attempt", "offset", "next", "size", "text"} of one look at the log; None when it has no byte yet.

        The numbers are bytes, ``next`` is where to go on. No offset means the last ``limit`` bytes, of which ``tail``
        keeps so many lines.
        """
        chosen = self.logs.newest_attempt(run_id) if attempt is None else attempt
        if chosen is None:
            return None
        part = self.logs.read(run_id, chosen, offset, min(limit, LOG_LIMIT_BYTES), lines=tail)
        if part.size == 0:
            return None
        text, after = _text(part)
        return {"attempt": chosen, "offset": part.offset, "next": after, "size": part.size, "text": text}

    def due(self, channel: str) -> Doc | None:
        """The message that this channel must get now; None when there is none or it must wait."""
        with self._read() as connection:
            return queue.due(connection, channel, self._clock())

    def channels(self) -> list[Doc]:
        with self._read() as connection:
            return queue.channels(connection)

    def messages(self, *, limit: int = 100) -> list[Doc]:
        with self._read() as connection:
            return queue.messages(connection, limit)

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        # The lock is for fairness between our threads; the database's own would make them poll.
        with self._writing, self._engine.connect() as connection:
            connection = connection.execution_options(write=True)
            with connection.begin():
                yield connection

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._engine.connect() as connection, connection.begin():
            yield connection


def _text(part: LogPart) -> tuple[str, int]:
    """The text, and where to go on: the beginning of a character whose rest has not come is left for later."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(part.data)
    if not text and part.next < part.size:
        return decoder.decode(b"", final=True), part.next  # the limit is less than a character: go on all the same
    return text, part.next - len(decoder.getstate()[0])
