"""The run's records: append-only JSON lines in numbered segments, one epoch for each life of an agent.

File name ``<epoch>.<segment>.jsonl``; the order of records is (epoch, seq). Only the writer's own epoch is ever
appended to, so a line that a crash tore stays the last of its file and readers drop it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Set

from dflash_supervise.agent.files import decode_json, sync_folder, write_atomic

SEGMENT_BYTES = 2 << 20
TOTAL_BYTES = 64 << 20  # about ten hours of observations; what matters of older ones is kept
MAX_RECORD_BYTES = 200 * 1024  # a line on the stream may have 256 KiB
LEAVE_BYTES = 1 << 20  # the last free bytes are the trainer's
NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)  # something else was put where the records lie
EPHEMERAL = ("observation", "heartbeat")  # what may be dropped when room is short

_NAME = re.compile(r"^([0-9]{6}-[0-9a-f]{4})\.([0-9]{4,9})\.jsonl$")
_EPOCH = re.compile(r"^[0-9]{6}-[0-9a-f]{4}$")


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


def segments_there(folder: str) -> List[Segment]:
    """``list_segments``; what is no folder holds none, as if it were not there."""
    try:
        return list_segments(folder)
    except OSError as error:
        if error.errno in NO_FOLDER:
            return []
        raise


def segment_path(folder: str, epoch: str, number: int) -> str:
    return os.path.join(folder, f"{epoch}.{number:04d}.jsonl")


def newest_number(folder: str, epoch: str) -> int:
    """The highest number of an epoch's segments; 0 when it has none."""
    return max((segment.number for segment in list_segments(folder) if segment.epoch == epoch), default=0)


def next_epoch(*folders: str, before: str = "") -> str:
    """The epoch after the newest on disk, and after ``before``: ``<6 digits>-<4 random hex>``."""
    epochs = [segment.epoch for folder in folders for segment in segments_there(folder)]
    ordinal = max((int(epoch[:6]) for epoch in [*epochs, before] if _EPOCH.match(epoch)), default=0) + 1
    return f"{ordinal:06d}-{os.urandom(2).hex()}"


def torn_tail_bytes(folder: str) -> int:
    """Bytes of an unfinished last line in the newest segment: what the agent before us could not finish."""
    segments = segments_there(folder)
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
        self._path = ""
        self._number = 0  # of the newest segment of ours: a number is used once, readers stand in segments
        self._written = 0  # of the open segment, in whole lines
        self._thin: Set[str] = set()

    def append(self, lines: List[bytes], sync: bool) -> None:
        """Write whole lines; with ``sync`` they are on disk when this returns.

        Raises:
            OSError: not all of them are there. What was taken is taken back where that goes; where it does not, a
                reader meets some lines twice when they come again, and knows them by (epoch, seq).
        """
        if self._fd is not None and not self._in_place():
            self._let_go()
            raise FileNotFoundError(errno.ENOENT, "it was deleted or moved", self._path)
        start = self._number, self._written
        try:
            for line in lines:
                self._open()
                self._write(line)
            if sync and self._fd is not None:
                os.fdatasync(self._fd)
        except OSError:
            self._take_back(start[1] if self._number == start[0] else 0)
            raise

    def close(self) -> None:
        """Sync and let go of the file."""
        try:
            if self._fd is not None:
                os.fdatasync(self._fd)
        finally:
            self._let_go()

    def take_over(self, segment: Segment) -> None:
        """Make a segment that was written elsewhere the next one here, whole and on disk.

        Raises:
            OSError: it is not here.
        """
        self.close()
        _make(self.folder)
        room = os.statvfs(self.folder)
        if room.f_bavail * room.f_frsize < os.stat(segment.path).st_size + LEAVE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.folder)
        with open(segment.path, "rb") as file:
            data = file.read()
        number = newest_number(self.folder, segment.epoch)
        if segment.epoch == self.epoch:
            number = self._number = max(number, self._number)
        write_atomic(segment_path(self.folder, segment.epoch, number + 1), data[: data.rfind(b"\n") + 1])

    def _write(self, line: bytes) -> None:
        assert self._fd is not None
        left = memoryview(line)
        while left:
            left = left[os.write(self._fd, left) :]
        self._written += len(line)

    def _take_back(self, start: int) -> None:
        """Cut the open segment to where this batch began. It is written on only if no reader can stand behind that."""
        if self._fd is None:
            return
        seen, self._written = self._written > start, start
        try:
            os.ftruncate(self._fd, start)
            if seen and start == 0:
                os.unlink(self._path)
        except OSError:
            seen = True  # a half line stays the last of its file, so readers drop it
        if seen:
            self._let_go()

    def _in_place(self) -> bool:
        """False when the file at the path is another one or none: what is written to ours would reach nobody."""
        assert self._fd is not None
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> None:
        if self._fd is not None and self._written < self._segment_bytes:
            return
        self.close()
        _make(self.folder)
        number = max(self._number, newest_number(self.folder, self.epoch)) + 1
        path = segment_path(self.folder, self.epoch, number)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._path, self._number, self._written = path, number, 0
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


def _make(folder: str) -> None:
    """Only the last folder of the path: a run directory that somebody deleted does not come back by itself."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return


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
        record = decode_json(line)
    except ValueError:
        return True  # torn: no reader takes it
    return not isinstance(record, dict) or record.get("kind") in EPHEMERAL
