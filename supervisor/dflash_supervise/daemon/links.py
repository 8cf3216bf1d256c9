"""One link a host that has runs: made when needed, found again at a restart, closed when nobody needs it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dflash_supervise.config.target import HostTarget, parse_target
from dflash_supervise.daemon.ingest import Ingest
from dflash_supervise.daemon.seam import HostLink, MakeLink
from dflash_supervise.link.host import Follow
from dflash_supervise.store import Store

IDLE_CLOSE_S = 120.0
LATE_LOG_S = 600.0  # a run that is over is followed on for the rest of its log


class Links:
    """All links of this daemon, by host key."""

    def __init__(
        self,
        store: Store,
        ingest: Ingest,
        make: MakeLink,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._ingest = ingest
        self._make = make
        self._monotonic = monotonic
        self._links: dict[str, HostLink] = {}
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()
        self._closed = False

    def open_all(self) -> None:
        """Links for every run that is not over; each follows from where the store stands."""
        self._store.links_unknown()
        for run in self._store.live_runs(ended_within_s=LATE_LOG_S):
            self.to(parse_target(run["target"]))

    def to(self, target: HostTarget) -> HostLink:
        """The link to this host, started if it was not there."""
        with self._lock:
            assert not self._closed, "the daemon is ending"
            self._used[target.key] = self._monotonic()
            found = self._links.get(target.key)
            if found is not None:
                return found
            self._store.put_host(target.key, str(target))
            link = self._make(target, self._ingest.put, lambda: self.follows(target.key))
            self._links[target.key] = link
        link.start()
        return link

    def get(self, host: str) -> HostLink | None:
        with self._lock:
            return self._links.get(host)

    def follows(self, host: str) -> tuple[Follow, ...]:
        """What to follow on a host, from what is stored: asked by the link at every connect."""
        runs = [run for run in self._store.live_runs(ended_within_s=LATE_LOG_S) if run["host"] == host]
        return tuple(self.follow_of(run["id"], run["workspace"]) for run in runs)

    def follow_of(self, run_id: str, workspace: str) -> Follow:
        return Follow(run_id, workspace, self._store.cursor(run_id), self._store.log_cursor(run_id))

    def follow(self, link: HostLink, run_id: str, workspace: str) -> None:
        """Begin to follow now; at a reconnect ``follows`` says it again."""
        wanted = self.follow_of(run_id, workspace)
        link.follow(wanted.run_id, wanted.workspace, wanted.cursor, wanted.log)

    def close_idle(self) -> None:
        """Close links that no run needs and nobody asked for lately."""
        needed = {run["host"] for run in self._store.live_runs()}
        now = self._monotonic()
        with self._lock:
            idle = [key for key in self._links if key not in needed and now - self._used[key] > IDLE_CLOSE_S]
            closing = [self._links.pop(key) for key in idle]
        for link in closing:
            link.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            links, self._links = list(self._links.values()), {}
        closers = [threading.Thread(target=link.close, name="close-link") for link in links]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
