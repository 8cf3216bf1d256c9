from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from dflash_supervise.web import WebSettings, create_app
from tests.unit.web.fakes import FakeControl, FakeStore
from tests.unit.web.fleet import bad_morning

TOKEN = "t" * 43


@dataclass
class Dashboard:
    """An application over invented runs, and clients of different standing."""

    app: FastAPI
    store: FakeStore
    control: FakeControl

    def client(self, *, base: str = "http://localhost:8000", **headers: str) -> TestClient:
        """A client with exactly these headers (``_`` stands for ``-``)."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return TestClient(self.app, base_url=base, headers=named, follow_redirects=False)

    def program(self) -> TestClient:
        return self.client(authorization=f"Bearer {TOKEN}")

    def browser(self, **headers: str) -> TestClient:
        """Signed in by a one-time link, as a browser on the dashboard's own pages."""
        path = self.program().post("/api/v1/login").json()["path"]
        told = {"sec_fetch_site": "same-origin", "origin": "http://localhost:8000", "accept": "text/html", **headers}
        client = self.client(**told)
        assert client.get(path).status_code == 200
        return client


@pytest.fixture
def dashboard() -> Dashboard:
    store, control = bad_morning(time.time())
    settings = WebSettings(token=TOKEN, port=8000, hosts=("gpu-desk.lan:8000",), poll_s=0.001, max_sse_clients=3)
    return Dashboard(create_app(store, control, settings), store, control)
