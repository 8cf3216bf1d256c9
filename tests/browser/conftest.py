from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from dflash_supervise.web.assets import templates_dir, vendored
from tests.browser.chromium import browser
from tests.browser.serve import TOKEN, served
from tests.unit.web.fakes import FakeControl, FakeStore
from tests.unit.web.fleet import bad_morning


@dataclass
class Desk:
    """A dashboard that is served for real, and a browser in front of it that writes down what it does."""

    url: str
    store: FakeStore
    control: FakeControl
    context: Callable[..., BrowserContext]
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str = "/", **options: Any) -> Page:
        page = self.context(**options).new_page()
        page.on("request", self._request)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        answer = page.goto(self.url + path)
        assert answer is not None and answer.ok, path
        return page

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """It ends with the file: its driver keeps an event loop running in this thread, which other tests run into."""
    missing = [name for name, there in vendored(templates_dir() / "static").items() if not there]
    assert not missing, f"the dashboard's libraries are missing ({', '.join(missing)}): run `make assets`"
    with browser() as instance:
        yield instance


@pytest.fixture
def desk(chromium: Browser) -> Iterator[Desk]:
    store, control = bad_morning(time.time())
    contexts: list[BrowserContext] = []

    def context(**options: Any) -> BrowserContext:
        wanted = {
            "viewport": {"width": 1280, "height": 800},
            "extra_http_headers": {"Authorization": f"Bearer {TOKEN}"},
        }
        fresh = chromium.new_context(**{**wanted, **options})
        fresh.set_default_timeout(20000)
        contexts.append(fresh)
        return fresh

    with served(store, control) as url:
        try:
            yield Desk(url, store, control, context)
        finally:
            for fresh in contexts:
                fresh.close()
