"""A receiver on loopback that answers what the test wants and keeps what it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """``answers`` are used up in order; afterwards it answers 200 ``ok``."""

    url: str = ""
    answers: list[tuple[int, str, dict[str, str]]] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _headers, body in self.got]


@contextmanager
def receiving(*answers: tuple[int, str] | tuple[int, str, dict[str, str]]) -> Iterator[Receiver]:
    receiver = Receiver(answers=[(one[0], one[1], one[2] if len(one) == 3 else {}) for one in answers])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append((dict(self.headers), body))
            status, text, headers = receiver.answers.pop(0) if receiver.answers else (200, "ok", {})
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="receiver", kwargs={"poll_interval": 0.02})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/services/T0/B0/secret"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
