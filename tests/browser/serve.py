"""The dashboard over invented runs, to look at: ``python -m tests.browser.serve [PORT]`` from the checkout."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections.abc import Iterator

import uvicorn

from dflash_supervise.web import WebSettings, create_app
from tests.unit.web.docs import observation
from tests.unit.web.fakes import FakeControl, FakeStore
from tests.unit.web.fleet import bad_morning

TOKEN = "dashboard-under-test-" + "0" * 43


@contextlib.contextmanager
def served(store: FakeStore, control: FakeControl, *, port: int = 0, poll_s: float = 0.05) -> Iterator[str]:
    """A real server in a thread; the value is its address."""
    config = uvicorn.Config("", host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=1)
    socket = config.bind_socket()
    bound = socket.getsockname()[1]
    config.app = create_app(store, control, WebSettings(token=TOKEN, port=bound, version="0.1.0", poll_s=poll_s))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started:
        if time.monotonic() > until or not thread.is_alive():
            raise RuntimeError("the dashboard did not start")
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{bound}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        socket.close()


def main() -> None:
    store, control = bad_morning(time.time())
    with served(store, control, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000) as url:
        print(f"{url}/login (token {TOKEN})", flush=True)
        while True:
            time.sleep(1.0)
            _live_a_second(store)


def _live_a_second(store: FakeStore) -> None:
    now = time.time()
    for run in [doc for doc in store.docs.values() if not doc["final"] and doc["reachable"]]:
        step = (run["step"] or 0) + (run["phase"] == "training")
        store.put_run(
            {**run, "step": step, "loss": run["loss"] and run["loss"] + random.gauss(0, 0.01), "news_unix": now}
        )
        store.put_record(run["id"], observation(store.docs[run["id"]]))


if __name__ == "__main__":
    main()
