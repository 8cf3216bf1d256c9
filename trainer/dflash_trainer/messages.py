"""Small messages between the processes of one attempt: JSON lists over a pair of sockets."""

from __future__ import annotations

import json
import socket
from multiprocessing.connection import Connection
from typing import Any


def pair() -> tuple[Connection, Connection]:
    """Two ends of a way; an end that its process has left is seen at the other."""
    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())


def send(way: Connection, *message: object) -> None:
    """Raises:
    OSError: the other end is gone.
    """
    way.send_bytes(json.dumps(message).encode())


def receive(way: Connection) -> list[Any]:
    """Wait for one message. A float arrives as the float it was, NaN too.

    Raises:
        EOFError, OSError: the other end is gone.
    """
    message: list[Any] = json.loads(way.recv_bytes())
    return message
