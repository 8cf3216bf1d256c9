"""A daemon's parts over a host in memory, without threads: lines are stored as they come."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.config import Settings, load
from dflash_supervise.daemon.handover import Handover
from dflash_supervise.daemon.ingest import Ingest
from dflash_supervise.daemon.links import Links
from dflash_supervise.daemon.operations import Operation
from dflash_supervise.daemon.parts import Parts
from dflash_supervise.daemon.watch import Watch
from dflash_supervise.store import Store
from tests.unit.daemon.fake_host import FakeHost
from tests.unit.store.writing import Clock

Doc = dict[str, Any]


class DirectIngest(Ingest):
    """Stores each line at once, in the thread that brings it."""

    def put(self, host: str, line: Doc) -> None:
        self.take([(host, line)])

    def words(self, run_id: str) -> queue.Queue[Doc]:
        return self.watch(run_id)


@dataclass
class Bench:
    store: Store
    host: FakeHost
    parts: Parts
    watch: Watch
    settings: Settings
    clock: Clock

    def operation(self) -> Operation:
        return Operation("op1", "start")

    def tick(self, seconds: float = 1.0) -> None:
        """One tick of the watch, with its requests to hosts done when it returns."""
        self.clock.now += seconds
        self.watch.tick()
        self.watch.settle()

    def restart(self) -> Bench:
        """The daemon was killed: the store on the disk and the host are what is left."""
        return bench(self.settings, self.host, self.clock)


def bench(settings: Settings, host: FakeHost, clock: Clock) -> Bench:
    store = Store(settings.store_url, clock=clock)
    ingest = DirectIngest(store, monotonic=clock)
    for link in host.links:
        link.close()
    host.links.clear()
    links = Links(store, ingest, host.make, monotonic=clock)
    handover = Handover(store, "sup-1")
    parts = Parts(store, links, ingest, handover, push=lambda _link, _workspace: "c" * 64, clock=clock)
    return Bench(store, host, parts, Watch(parts, settings, monotonic=clock), settings, clock)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("dflash_supervise.daemon.goals.ACKNOWLEDGE_S", 0.0)
    monkeypatch.setattr("dflash_supervise.daemon.launch.FIRST_WORD_S", 0.0)
    settings = load(files=(), environ={"DFLASH_SUPERVISE_STATE_DIR": str(tmp_path)})
    found = bench(settings, FakeHost(), Clock())
    yield found
    found.watch.close()
    found.store.close()
