"""Everything that one connection holds open, closed together by whoever first finds that it is over."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from dflash_supervise.link.errors import LinkError


class Closer:
    """Collects what must be closed, while a connection is still being made and for its whole life.

    paramiko blocks without a time limit in several calls (asking for a command, writing, asking with an
    answer wanted); closing what they stand on, from another thread, wakes every one of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closes: list[Callable[[], object]] = []
        self._closed = False
        self._why: LinkError | None = None

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def why(self) -> LinkError | None:
        """The first reason that was given."""
        return self._why

    def add(self, close: Callable[[], object]) -> None:
        """Close this too; at once when all is closed already."""
        with self._lock:
            if not self._closed:
                self._closes.append(close)
                return
        _quietly(close)

    def close(self, why: LinkError | None = None) -> None:
        """Close all, the socket before what talks over it: a polite goodbye could block."""
        with self._lock:
            if self._why is None:
                self._why = why
            closes, self._closes = self._closes, []
            self._closed = True
        for close in closes:
            _quietly(close)

    @contextlib.contextmanager
    def limit(self, limit_s: float, why: LinkError) -> Iterator[None]:
        """Close all with this reason when the block takes longer than limit_s."""
        ticket = _watchdog.watch(self, time.monotonic() + limit_s, why)
        try:
            yield
        finally:
            _watchdog.forget(ticket)


class _Watchdog:
    """One thread for the time limits of all connections."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[object, tuple[float, Closer, LinkError]] = {}
        self._thread: threading.Thread | None = None

    def watch(self, closer: Closer, until: float, why: LinkError) -> object:
        ticket = object()
        with self._changed:
            first = min((entry[0] for entry in self._watched.values()), default=None)
            self._watched[ticket] = (until, closer, why)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dflash-link-watchdog", daemon=True)
                self._thread.start()
            elif first is None or until < first:
                self._changed.notify()
        return ticket

    def forget(self, ticket: object) -> None:
        with self._changed:
            self._watched.pop(ticket, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                late = [ticket for ticket, entry in self._watched.items() if entry[0] <= now]
                entries = [self._watched.pop(ticket) for ticket in late]
                if not entries:
                    first = min((entry[0] for entry in self._watched.values()), default=None)
                    self._changed.wait(None if first is None else first - now)
            for _, closer, why in entries:
                # In a thread of its own: a close that hangs must not hold up the others' limits.
                threading.Thread(target=closer.close, args=[why], name="dflash-link-close", daemon=True).start()


def _quietly(close: Callable[[], object]) -> None:
    # What is half open may be closed by its other end in this moment.
    with contextlib.suppress(OSError, EOFError):
        close()


_watchdog = _Watchdog()
