"""From the links into the store: one queue, one thread, one transaction a batch and run."""

from __future__ import annotations

import base64
import binascii
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dflash_supervise.store import NoSuchRun, Store, StoreError

Doc = dict[str, Any]

log = logging.getLogger(__name__)

QUEUE_LINES = 5000  # then the links wait, and the hosts keep their records
BATCH_LINES = 2000
RETRY_S = (0.2, 1.0, 5.0, 15.0)

_ENVELOPE: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("run", str),
    ("epoch", str),
    ("seq", int),
    ("kind", str),
    ("t_s", (int, float)),
    ("at", str),
)


class HostClock:
    """The host's boot-time clock, carried on by our own monotonic one: ages without comparing wall clocks."""

    def __init__(self, now_s: float, heard: float) -> None:
        self._now_s = now_s
        self._heard = heard

    def age_s(self, t_s: float, now: float) -> float:
        """How long ago the host wrote ``t_s``; 0 for what cannot be (another boot's time)."""
        return max(0.0, self._now_s + (now - self._heard) - t_s)


class Ingest:
    """Owns the queue between links and store. ``put`` is a link's sink: it waits when the store cannot follow."""

    def __init__(self, store: Store, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._queue: queue.Queue[tuple[str, Doc] | None] = queue.Queue(QUEUE_LINES)
        self._clocks: dict[str, HostClock] = {}
        self._watchers: dict[str, list[queue.Queue[Doc]]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Store what has arrived and end."""
        self._closing.set()
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout=10)

    def put(self, host: str, line: Doc) -> None:
        while not self._closing.is_set():
            try:
                self._queue.put((host, line), timeout=0.5)
                return
            except queue.Full:
                continue

    def watch(self, run_id: str) -> queue.Queue[Doc]:
        """A queue that gets every new record of the run, after it was stored."""
        watcher: queue.Queue[Doc] = queue.Queue()
        with self._lock:
            self._watchers.setdefault(run_id, []).append(watcher)
        return watcher

    def unwatch(self, run_id: str, watcher: queue.Queue[Doc]) -> None:
        with self._lock:
            kept = [one for one in self._watchers.get(run_id, []) if one is not watcher]
            self._watchers[run_id] = kept
            if not kept:
                del self._watchers[run_id]

    def _run(self) -> None:
        ending = False
        while not ending:
            first = self._queue.get()
            batch = [] if first is None else [first]
            ending = first is None
            while not ending and len(batch) < BATCH_LINES:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                ending = more is None
                batch += [] if more is None else [more]
            self.take(batch)

    def take(self, batch: Sequence[tuple[str, Doc]]) -> None:
        """Store a batch of lines in their order; records of one run that follow each other go in together."""
        records: dict[str, list[Doc]] = {}
        hosts: dict[str, str] = {}
        for host, line in batch:
            match line.get("t"):
                case "rec":
                    record = _record(line)
                    if record is None:
                        log.error("a record without its envelope was dropped host=%s", host)
                        continue
                    records.setdefault(record["run"], []).append(record)
                    hosts[record["run"]] = host
                case "log":
                    self._log(host, line)
                case "link":
                    self._apply(records, hosts)
                    records = {}
                    self._retry(partial(self._link, host, line))
                case "beat":
                    self._clock(host, line)
                case "follow_refused":
                    log.error("a host refuses to show a run run=%s: %s", line.get("run"), line.get("error"))
                case other:
                    log.debug("a line of another kind was left alone host=%s kind=%s", host, other)
        self._apply(records, hosts)

    def _apply(self, records: Mapping[str, list[Doc]], hosts: Mapping[str, str]) -> None:
        for run_id, found in records.items():
            self._retry(partial(self._apply_run, run_id, found, hosts[run_id]))
            with self._lock:
                watchers = list(self._watchers.get(run_id, ()))
            for watcher in watchers:
                for record in found:
                    watcher.put(record)

    def _apply_run(self, run_id: str, records: list[Doc], host: str) -> None:
        clock, now = self._clocks.get(host), self._monotonic()
        newest = max(record["t_s"] for record in records)
        age_s = clock.age_s(newest, now) if clock else 0.0
        try:
            self._store.apply(run_id, records, age_s=age_s)
        except NoSuchRun:
            log.warning("records of an unknown run were left on the host run=%s host=%s", run_id, host)
        except (KeyError, TypeError, ValueError):
            if len(records) == 1:
                log.exception("a record cannot be understood and was dropped run=%s seq=%s", run_id, records[0]["seq"])
                return
            for record in records:
                self._apply_run(run_id, [record], host)

    def _log(self, host: str, line: Doc) -> None:
        try:
            data = base64.b64decode(line["data"], validate=True)
            run_id, attempt, offset = line["run"], int(line["attempt"]), int(line["offset"])
        except (KeyError, TypeError, ValueError, binascii.Error):
            log.exception("log bytes cannot be understood and were dropped host=%s", host)
            return
        self._retry(lambda: self._store.append_log(run_id, attempt, offset, data))

    def _link(self, host: str, line: Doc) -> None:
        hello = line.get("hello")
        self._store.set_link(host, line["status"], line.get("error"), hello=hello)
        self._clock(host, hello or {})

    def _clock(self, host: str, line: Doc) -> None:
        now_s = line.get("now_s")
        if isinstance(now_s, int | float):
            self._clocks[host] = HostClock(float(now_s), self._monotonic())

    def _retry(self, act: Callable[[], None]) -> None:
        """A full disk or a locked database is the world's: wait for it, the hosts keep what comes meanwhile."""
        tries = 0
        while True:
            try:
                return act()
            except (StoreError, OSError):
                wait_s = RETRY_S[min(tries, len(RETRY_S) - 1)]
                log.exception("the store does not take what came; trying again in_s=%s", wait_s)
                tries += 1
                if self._closing.wait(wait_s) and tries > 3:
                    return  # not stored, so the cursor stays and the host sends it again


def _record(line: Doc) -> Doc | None:
    record = line.get("rec")
    if isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in _ENVELOPE):
        return record
    return None
