"""The run's records: append-only JSON lines in numbered segments, one epoch for each life of an agent.

File name ``<epoch>.<segment>.jsonl``; the order of records is (epoch, seq). Only the writer's own epoch is ever
appended to, so a line that a crash tore stays the last of its file and readers drop it.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, List, Optional, Set, Tuple

from dflash_supervise.agent.files import sync_folder

SEGMENT_BYTES = 2 << 20
TOTAL_BYTES = 64 << 20  # about ten hours of observations; what matters of older ones is kept
MAX_RECORD_BYTES = 200 * 1024  # a line on the stream may have 256 KiB
PENDING_BYTES = 4 << 20  # kept in memory while the workspace does not take them
EPHEMERAL = ("observation", "heartbeat")  # what may be dropped when room is short

_NAME = re.compile(r"^(\d{6}-[0-9a-f]{4})\.(\d{4,})\.jsonl$")


@dataclass(frozen=True)
class Segment:
    """One file of records."""

    epoch: str
    number: int
    path: str


def list_segments(folder: str) -> List[Segment]:
    """All segments, oldest first; an empty list when the folder is not there yet.

    Raises:
        OSError: the folder cannot be read.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        match = _NAME.match(name)
        if match:
            found.append(Segment(match.group(1), int(match.group(2)), os.path.join(folder, name)))
    return sorted(found, key=lambda segment: (segment.epoch, segment.number))


def next_epoch(folder: str) -> str:
    """The epoch after the newest on disk: ``<6 digits>-<4 random hex>``."""
    segments = list_segments(folder)
    ordinal = int(segments[-1].epoch[:6]) + 1 if segments else 1
    return f"{ordinal:06d}-{os.urandom(2).hex()}"


def torn_tail_bytes(folder: str) -> int:
    """Bytes of an unfinished last line in the newest segment: what the agent before us could not finish."""
    segments = list_segments(folder)
    if not segments:
        return 0
    with open(segments[-1].path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_RECORD_BYTES - 1))
        tail = file.read()
    return len(tail) - (tail.rfind(b"\n") + 1)


def encode(record: Dict[str, Any]) -> bytes:
    """One record as a line. A record too large for the stream loses its log text, and says so."""
    line = _line(record)
    if len(line) <= MAX_RECORD_BYTES:
        return line
    slim: Dict[str, Any] = {key: record[key] for key in ("v", "run", "epoch", "seq", "t_s", "at") if key in record}
    if record.get("kind") == "observation" and isinstance(record.get("obs"), dict):
        obs = {key: value for key, value in record["obs"].items() if key not in ("log", "processes")}
        slim.update(kind="observation", obs=obs, cut_bytes=len(line))
        if len(_line(slim)) <= MAX_RECORD_BYTES:
            return _line(slim)
        del slim["obs"], slim["cut_bytes"]
    text = "a {} record of {} bytes was too large and is left out".format(record.get("kind"), len(line))
    slim.update(kind="note", text=text)
    return _line(slim)


def _line(record: Dict[str, Any]) -> bytes:
    try:
        text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    except ValueError:  # JSON has no NaN; a loss that is none is told by its note
        text = json.dumps(_finite(record), separators=(",", ":"), allow_nan=False)
    return (text + "\n").encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


class SegmentWriter:
    """Appends lines in order. It does file work only; whoever may not block runs it in a lane."""

    def __init__(
        self, folder: str, epoch: str, segment_bytes: int = SEGMENT_BYTES, total_bytes: int = TOTAL_BYTES
    ) -> None:
        self.folder = folder
        self.epoch = epoch
        self._segment_bytes = segment_bytes
        self._total_bytes = total_bytes
        self._fd: Optional[int] = None
        self._number = 0
        self._written = 0
        self._pending: Deque[bytes] = deque()
        self._pending_bytes = 0
        self._torn = False  # the first pending line is partly in the file
        self._thin: Set[str] = set()

    def write(self, lines: List[Tuple[str, bytes]], sync: bool) -> None:
        """Append (kind, line) pairs; with ``sync`` they are on disk when this returns.

        Raises:
            OSError: the workspace did not take them all. They are kept, up to 4 MiB, and go first next time.
        """
        for kind, line in lines:
            if self._pending_bytes > PENDING_BYTES and kind in EPHEMERAL:
                continue
            self._pending.append(line)
            self._pending_bytes += len(line)
        while self._pending:
            self._open()
            assert self._fd is not None
            line = self._pending[0]
            done = os.write(self._fd, line)
            self._written += done
            self._pending_bytes -= done
            if done < len(line):
                self._pending[0], self._torn = line[done:], True
                continue
            self._pending.popleft()
            self._torn = False
        if sync and self._fd is not None:
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Sync and let go of the file."""
        if self._fd is not None:
            os.fdatasync(self._fd)
            os.close(self._fd)
            self._fd = None

    def _open(self) -> None:
        if self._fd is not None and (self._written < self._segment_bytes or self._torn):
            return
        if self._fd is not None:
            self.close()
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        path = os.path.join(self.folder, f"{self.epoch}.{self._number + 1:04d}.jsonl")
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._number, self._written = self._number + 1, 0
        sync_folder(self.folder)
        self._shrink()

    def _shrink(self) -> None:
        segments = list_segments(self.folder)
        sizes = {segment.path: os.stat(segment.path).st_size for segment in segments}
        total = sum(sizes.values())
        for segment in segments[:-1]:
            if total <= self._total_bytes:
                return
            if segment.path not in self._thin:
                total -= sizes[segment.path] - thin(segment.path)
                self._thin.add(segment.path)


def thin(path: str) -> int:
    """Rewrite one segment without observations and heartbeats; its new size in bytes."""
    with open(path, "rb") as file:
        kept = [line for line in file if line.endswith(b"\n") and not _is_ephemeral(line)]
    beside = path + ".thin"
    with open(beside, "wb") as file:
        file.writelines(kept)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync_folder(os.path.dirname(path))
    return sum(len(line) for line in kept)


def _is_ephemeral(line: bytes) -> bool:
    try:
        return json.loads(line.decode("utf-8")).get("kind") in EPHEMERAL
    except ValueError:
        return True  # torn: no reader takes it
