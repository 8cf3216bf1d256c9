"""The live stream: what a client hears, from where it goes on, and how many may listen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.web.conftest import TOKEN, Dashboard
from tests.unit.web.docs import observation

RUN = "qwen-b16-2605041203-1a2b"
DEADLINE_S = 30.0


@dataclass(frozen=True)
class Event:
    name: str
    id: int | None
    data: Any


class Listener:
    """An ASGI client that reads an endless answer; closing it is what a closed tab does."""

    def __init__(self, dashboard: Dashboard, query: str = "", **headers: str) -> None:
        self.events: list[Event] = []
        self.status = 0
        self._text = ""
        self._news = asyncio.Event()
        self._closed = asyncio.Event()
        named = {"host": "localhost:8000", "authorization": f"Bearer {TOKEN}", **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": "GET",
            "path": "/events",
            "raw_path": b"/events",
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(key.replace("_", "-").encode(), value.encode()) for key, value in named.items()],
            "client": ("127.0.0.1", 5000),
            "server": ("127.0.0.1", 8000),
        }
        self._task = asyncio.create_task(dashboard.app(scope, self._receive, self._send))

    async def until(self, enough: Callable[[list[Event]], bool]) -> list[Event]:
        async with asyncio.timeout(DEADLINE_S):
            while not enough(self.events):
                self._news.clear()
                await self._news.wait()
        return self.events

    async def answered(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            while not self.status:
                self._news.clear()
                await self._news.wait()
        return self.status

    async def close(self) -> None:
        self._closed.set()
        async with asyncio.timeout(DEADLINE_S):
            await self._task

    async def _receive(self) -> dict[str, Any]:
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self._text += message.get("body", b"").decode()
        *whole, self._text = self._text.split("\n\n")
        self.events += [event for block in whole if (event := _event(block))]
        self._news.set()


def _event(block: str) -> Event | None:
    fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
    if "event" not in fields:
        return None
    return Event(fields["event"], int(fields["id"]) if "id" in fields else None, json.loads(fields["data"]))


def records(events: list[Event]) -> list[Event]:
    return [event for event in events if event.name == "record"]


def test_a_new_client_gets_every_run_and_then_what_happens(dashboard: Dashboard) -> None:
    async def story() -> None:
        listener = Listener(dashboard)
        await listener.until(lambda events: sum(event.name == "run" for event in events) == 6)
        assert not records(listener.events)
        row = dashboard.store.put_record(RUN, {"kind": "note", "text": "hello"})
        await listener.until(lambda events: any(event.name == "run" and event.id == row for event in events))
        assert [(event.id, event.data["text"]) for event in records(listener.events)] == [(row, "hello")]
        await listener.close()

    asyncio.run(story())


def test_a_laptop_that_slept_gets_every_record_once_and_in_order(dashboard: Dashboard) -> None:
    rows = [dashboard.store.put_record(RUN, {"kind": "note", "text": str(n)}) for n in range(1200)]

    async def story() -> None:
        listener = Listener(dashboard, "only=record", last_event_id=str(rows[99]))
        await listener.until(lambda events: len(events) >= 1100)
        later = dashboard.store.put_record(RUN, {"kind": "note", "text": "later"})
        await listener.until(lambda events: events[-1].id == later)
        assert [event.id for event in listener.events] == [*rows[100:], later]
        await listener.close()

    asyncio.run(story())


def test_a_nonsense_id_begins_now_instead_of_failing(dashboard: Dashboard) -> None:
    async def story() -> None:
        for nonsense in ("-5", "abc", "9" * 40, "\u0663"):
            listener = Listener(dashboard, "only=changed", last_event_id=nonsense)
            assert await listener.answered() == 200
            await listener.close()

    asyncio.run(story())


def test_a_page_of_one_run_hears_of_no_other(dashboard: Dashboard) -> None:
    async def story() -> None:
        listener = Listener(dashboard, "run=qwen-b16&only=record,changed")
        await listener.until(lambda events: len(events) == 1)
        other = next(name for name in dashboard.store.docs if name != RUN)
        dashboard.store.put_record(other, {"kind": "note", "text": "not mine"})
        mine = dashboard.store.put_record(RUN, observation(dashboard.store.docs[RUN]))
        await listener.until(lambda events: len(events) >= 3)
        assert [(event.name, event.id) for event in listener.events[1:]] == [("record", mine), ("changed", mine)]
        assert listener.events[-1].data == {"runs": [RUN]}
        await listener.close()

    asyncio.run(story())


def test_a_link_that_changes_is_told_and_one_that_only_ages_is_not(dashboard: Dashboard) -> None:
    async def story() -> None:
        listener = Listener(dashboard, "only=link,beat")
        await listener.until(bool)
        lab8, other = dashboard.control.host_docs
        dashboard.control.host_docs = [{**lab8, "age_s": 9999.0}, {**other, "status": "ready", "error": None}]
        await listener.until(lambda events: any(event.name == "link" for event in events))
        assert [event.data["host"] for event in listener.events if event.name == "link"] == ["gpu-a07"]
        await listener.close()

    asyncio.run(story())


def test_a_loss_that_is_no_number_does_not_end_the_stream(dashboard: Dashboard) -> None:
    async def story() -> None:
        listener = Listener(dashboard, "only=record,run")
        dashboard.store.put_run({**dashboard.store.docs[RUN], "loss": float("nan")})
        await listener.until(lambda events: len(events) >= 6)
        row = dashboard.store.put_record(RUN, {"kind": "note", "text": "x", "loss": float("inf")})
        await listener.until(lambda events: any(event.name == "run" and event.id == row for event in events))
        assert listener.events[-1].data["loss"] is None
        assert records(listener.events)[-1].data["loss"] is None
        await listener.close()

    asyncio.run(story())


def test_one_client_too_many_is_told_and_a_closed_tab_gives_its_place_back(dashboard: Dashboard) -> None:
    async def story() -> None:
        most = 3  # the fixture's settings
        listeners = [Listener(dashboard, "only=changed") for _ in range(most)]
        assert [await listener.answered() for listener in listeners] == [200] * most
        extra = Listener(dashboard, "only=changed")
        assert await extra.answered() == 503
        await extra.close()
        await listeners[0].close()
        again = Listener(dashboard, "only=changed")
        assert await again.answered() == 200
        for listener in [*listeners[1:], again]:
            await listener.close()

    asyncio.run(story())


@pytest.mark.parametrize(("query", "status"), [("only=gossip", 400), ("run=nobody", 404)])
def test_a_wrong_wish_is_answered_at_connect(dashboard: Dashboard, query: str, status: int) -> None:
    assert dashboard.program().get(f"/events?{query}").status_code == status


@pytest.mark.parametrize("headers", [{"origin": "http://localhost:3000"}, {"sec_fetch_site": "same-site"}])
def test_another_site_cannot_listen(dashboard: Dashboard, headers: dict[str, str]) -> None:
    async def story() -> None:
        listener = Listener(dashboard, **headers)
        assert await listener.answered() == 403
        await listener.close()

    asyncio.run(story())
