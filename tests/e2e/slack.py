"""A Slack incoming webhook on loopback: answers as Slack does and keeps what it was told."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SlackReceiver:
    """Attributes:
    messages: bodies that were accepted, in order.
    down: answer 503 instead, and keep nothing.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.refused = 0
        self.down = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = receiver._take(json.loads(body))
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="slack", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/services/T0/B0/secret"

    @property
    def texts(self) -> list[str]:
        return [str(message["text"]) for message in self.messages]

    def _take(self, body: dict[str, Any]) -> tuple[int, bytes]:
        if self.down:
            self.refused += 1
            return 503, b"service_unavailable"
        self.messages.append(body)
        return 200, b"ok"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
