"""The live stream: server-sent events whose id is the store's row, so a laptop that slept catches up.

Each client looks at the store's level a few times a second instead of being told of edges: nothing to register, nothing
to lose, and a restart of the daemon needs no code.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from dflash_supervise.web.control import Control, Doc, Reads, Refused
from dflash_supervise.web.settings import WebSettings

KINDS = ("run", "record", "link")  # what a client gets that asks for nothing special
LIGHT = "changed"  # names only, for pages that fetch their own fragments
BEAT = "beat"  # a page greys out when even this stays away: a dead tunnel ends no connection
BEAT_S = 5.0
ALL_KINDS = (*KINDS, LIGHT, BEAT)
BATCH = 500
PING_S = 15
SEND_TIMEOUT_S = 30.0  # a client that reads nothing for this long gives its place back


class Stream:
    """Counts the clients; each of them follows the store by itself."""

    def __init__(self, store: Reads, control: Control, settings: WebSettings) -> None:
        self._store = store
        self._control = control
        self._settings = settings
        self._clients = 0

    def open(self, after: int | None, run: str | None, kinds: frozenset[str]) -> EventSourceResponse:
        """Raises Refused (503) when every place is taken."""
        if self._clients >= self._settings.max_sse_clients:
            raise Refused(
                "too_many_streams",
                f"All {self._settings.max_sse_clients} live streams are in use.",
                "Close another tab of the dashboard; this page still works, reload it for news.",
                exit_code=1,
                http_status=503,
            )
        self._clients += 1
        return _Counted(self._events(after, run, kinds), self._closed)

    def _closed(self) -> None:
        self._clients -= 1

    async def _events(
        self, after: int | None, run: str | None, kinds: frozenset[str]
    ) -> AsyncIterator[ServerSentEvent]:
        row = await run_sync(self._store.last_row) if after is None else after
        hosts = await self._hosts() if "link" in kinds else {}
        for event in await run_sync(self._opening, row, run, kinds):
            yield event
        beat_at = 0.0
        while True:
            before = row
            row, events = await run_sync(self._batch, row, run, kinds)
            if "link" in kinds:
                known, hosts = hosts, await self._hosts()
                events += _link_events(known, hosts)
            if BEAT in kinds and anyio.current_time() - beat_at >= BEAT_S:
                beat_at = anyio.current_time()
                events.append(_event(BEAT, {}))
            for event in events:
                yield event
            if row == before:
                await anyio.sleep(self._settings.poll_s)

    def _opening(self, row: int, run: str | None, kinds: frozenset[str]) -> list[ServerSentEvent]:
        """The state at connect: what changed between drawing the page and listening is not missed."""
        runs = [doc for doc in self._store.runs() if run is None or doc.get("id") == run]
        events = [_event("run", doc, row) for doc in runs] if "run" in kinds else []
        if LIGHT in kinds:
            events.append(_event(LIGHT, {"runs": [doc.get("id") for doc in runs]}, row))
        return events

    def _batch(self, row: int, run: str | None, kinds: frozenset[str]) -> tuple[int, list[ServerSentEvent]]:
        if self._store.last_row() <= row:
            return row, []
        fed = self._store.feed(row, BATCH)
        if not fed:
            return row, []
        mine = [item for item in fed if run is None or item.get("run") == run]
        last = int(fed[-1]["row"])
        events: list[ServerSentEvent] = []
        if "record" in kinds:
            events += [_event("record", _record(item), int(item["row"])) for item in mine]
        touched = list(dict.fromkeys(str(item["run"]) for item in mine))
        if "run" in kinds:
            docs = [self._store.run(name) for name in touched]
            events += [_event("run", doc, last) for doc in docs if doc is not None]
        if LIGHT in kinds and touched:
            events.append(_event(LIGHT, {"runs": touched}, last))
        return last, events

    async def _hosts(self) -> dict[str, Doc]:
        return {str(doc.get("host")): doc for doc in await run_sync(self._control.hosts)}


class _Counted(EventSourceResponse):
    """A stream that gives its place back however it ends."""

    def __init__(self, content: AsyncIterator[ServerSentEvent], closed: Callable[[], None]) -> None:
        super().__init__(content, ping=PING_S, send_timeout=SEND_TIMEOUT_S, sep="\n")
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed()


def events_router(stream: Stream, store: Reads) -> APIRouter:
    router = APIRouter()

    @router.get("/events", response_class=EventSourceResponse)
    @router.get("/api/v1/events", response_class=EventSourceResponse)
    async def events(request: Request, run: str | None = None, only: str = Query("")) -> EventSourceResponse:
        kinds = frozenset(only.split(",")) if only else frozenset(KINDS)
        if kinds - set(ALL_KINDS):
            raise Refused(
                "bad_request",
                f"Unknown event: {', '.join(sorted(kinds - set(ALL_KINDS)))}.",
                f"Use only={','.join(ALL_KINDS)} or a part of it.",
                exit_code=2,
                http_status=400,
            )
        run_id = None
        if run is not None:
            doc = await run_sync(store.run, run)
            if doc is None:
                raise Refused("no_such_run", f"There is no run {run}.", exit_code=102, http_status=404)
            run_id = str(doc["id"])
        return stream.open(_last_event_id(request), run_id, kinds)

    return router


def _last_event_id(request: Request) -> int | None:
    given = request.headers.get("last-event-id", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 16 else None


def _record(item: Doc) -> Doc:
    return {"row": item["row"], "run": item["run"], **item["record"]}


def _link_events(before: dict[str, Doc], now: dict[str, Doc]) -> list[ServerSentEvent]:
    """Ages grow by themselves and are no change."""
    told = ("status", "since_at", "error")
    changed = [
        doc for key, doc in now.items() if [doc.get(k) for k in told] != [before.get(key, {}).get(k) for k in told]
    ]
    return [_event("link", doc) for doc in changed]


def _event(name: str, doc: Doc, row: int | None = None) -> ServerSentEvent:
    return ServerSentEvent(_dump(doc), event=name, id=None if row is None else str(row), sep="\n")


def _dump(doc: Any) -> str:
    try:
        return json.dumps(doc, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a loss of NaN is real and has no JSON
        return json.dumps(_finite(doc), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
