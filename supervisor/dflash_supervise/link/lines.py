"""Bytes of the stream to messages: everything that does not follow a record separator is noise."""

from __future__ import annotations

import json
from typing import Any

RECORD_SEPARATOR = b"\x1e"
LINE_LIMIT_BYTES = 256 * 1024
_NOISE_LIMIT_BYTES = 2048


class LineSplitter:
    """Cuts a byte stream into our lines.

    Login shells print before us, and may leave a line without an end. JSON never holds a bare record
    separator, so the last one of a line begins ours.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skipping = False
        self._noise = bytearray()
        self.dropped = 0  # lines of ours that were too long or no JSON

    def feed(self, data: bytes) -> list[bytes]:
        """Our complete lines, without separator and line end."""
        self._rest += data
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        ours = [line for line in map(self._ours, lines) if line is not None]
        if len(self._rest) > LINE_LIMIT_BYTES:
            self._keep_noise(bytes(self._rest[:_NOISE_LIMIT_BYTES]))
            self._rest.clear()
            self._skipping = True
        return ours

    @property
    def noise(self) -> str:
        """The end of what was no line of ours, for a person: printable, at most 2 KiB."""
        text = bytes(self._noise + self._rest[:_NOISE_LIMIT_BYTES]).decode("utf-8", "replace")
        return "".join(c if c.isprintable() or c == "\n" else " " for c in text).strip()

    def _ours(self, line: bytes) -> bytes | None:
        if self._skipping:
            self._skipping = False
            self.dropped += 1
            return None
        before, separator, ours = line.rpartition(RECORD_SEPARATOR)
        self._keep_noise(before if separator else line + b"\n")
        return ours if separator else None

    def _keep_noise(self, data: bytes) -> None:
        self._noise += data[-_NOISE_LIMIT_BYTES:]
        del self._noise[:-_NOISE_LIMIT_BYTES]


def parse(line: bytes) -> dict[str, Any] | None:
    """The message of a line, or None when it is none: a line cut by a dying host is not an error of ours."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def encode(message: dict[str, Any]) -> bytes:
    """A request as it goes to the agent.

    Raises:
        ValueError: longer than the 256 KiB that a line may have.
    """
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    if len(line) > LINE_LIMIT_BYTES:
        raise ValueError(f"a request of {len(line)} bytes is over the limit of {LINE_LIMIT_BYTES} bytes")
    return line
