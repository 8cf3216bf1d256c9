"""Log bytes of attempts in files: the first 1 MiB and the last 16 MiB of each, gaps marked when read.

A file is a piece of the log, named by the offset of its first byte. What is known is what lies on the disk, so a
killed daemon goes on from the true end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HEAD_BYTES = 1024 * 1024
TAIL_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Piece:
    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class LogPart:
    """What one look at the files of a log gave: ``offset <= next <= size`` are byte offsets in the log.

    ``data`` has a line of ours in place of bytes that are not kept, so its length says nothing of ``next``.
    """

    offset: int
    next: int
    size: int
    data: bytes


class LogFiles:
    """The logs of all runs under one directory. One writer; readers may look at any time."""

    def __init__(
        self,
        root: Path,
        *,
        head_bytes: int = HEAD_BYTES,
        tail_bytes: int = TAIL_BYTES,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._root = root
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._piece_bytes = piece_bytes

    def append(self, run_id: str, attempt: int, offset: int, data: bytes) -> None:
        """Bytes of the log from ``offset`` on. What is there already is not written again."""
        folder = self._folder(run_id, attempt)
        pieces = self._pieces(folder)
        known = pieces[-1].end if pieces else 0
        if offset < known:
            data, offset = data[known - offset :], known
        if not data:
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        last = pieces[-1] if pieces else None
        while data:
            fits = last is not None and last.end == offset and last.size < self._limit(last.start)
            start = last.start if fits and last is not None else offset
            room = self._limit(start) - (offset - start)
            part, data = data[:room], data[room:]
            last = _write(folder / f"{start:016d}", start, part)
            offset += len(part)
        self._drop(folder)

    def size(self, run_id: str, attempt: int) -> int:
        """Bytes from the log's beginning to the end of what came."""
        pieces = self._pieces(self._folder(run_id, attempt))
        return pieces[-1].end if pieces else 0

    def newest_attempt(self, run_id: str) -> int | None:
        folder = self._root / run_id
        numbers = [int(item.name) for item in folder.iterdir() if item.name.isdigit()] if folder.is_dir() else []
        return max(numbers, default=None)

    def read(self, run_id: str, attempt: int, offset: int | None, limit: int, *, lines: int | None = None) -> LogPart:
        """At most ``limit`` bytes of the log from ``offset`` on. A gap is one line that names its size.

        No offset means the last ``limit`` bytes, one beyond the end the end. With ``lines`` only so many of the last
        lines are kept.
        """
        # Listed once: the log grows meanwhile, and what is told of it must fit together.
        pieces = self._pieces(self._folder(run_id, attempt))
        size = pieces[-1].end if pieces else 0
        begin = max(0, size - limit) if offset is None else min(max(0, offset), size)
        stretches = _stretches(pieces, begin, limit)
        after = stretches[-1][0] + len(stretches[-1][1]) if stretches else begin
        if lines is not None:
            begin, stretches = _last_lines(stretches, lines, begin)
        return LogPart(begin, after, size, _joined(stretches, begin))

    def _folder(self, run_id: str, attempt: int) -> Path:
        assert "/" not in run_id and run_id not in ("", ".", ".."), run_id
        return self._root / run_id / str(attempt)

    def _limit(self, start: int) -> int:
        # No piece crosses the end of the head, so the tail can be dropped without it.
        return min(self._piece_bytes, self._head_bytes - start) if start < self._head_bytes else self._piece_bytes

    def _pieces(self, folder: Path) -> list[Piece]:
        if not folder.is_dir():
            return []
        names = sorted(item for item in folder.iterdir() if item.name.isdigit())
        return [Piece(path, int(path.name), path.stat().st_size) for path in names]

    def _drop(self, folder: Path) -> None:
        tail = [piece for piece in self._pieces(folder) if piece.start >= self._head_bytes]
        excess = sum(piece.size for piece in tail) - self._tail_bytes
        for piece in tail:
            if excess < piece.size:
                return
            piece.path.unlink()
            excess -= piece.size


def _stretches(pieces: list[Piece], begin: int, limit: int) -> list[tuple[int, bytes]]:
    """(offset, bytes) of what is kept without a gap, in order."""
    found: list[tuple[int, bytes]] = []
    at, left = begin, limit
    for piece in pieces:
        start = max(at, piece.start)
        data = _part(piece, start, left) if piece.end > at else b""
        if not data:
            continue
        if found and start == at:
            found[-1] = (found[-1][0], found[-1][1] + data)
        else:
            found.append((start, data))
        at, left = start + len(data), left - len(data)
    return found


def _last_lines(stretches: list[tuple[int, bytes]], wanted: int, begin: int) -> tuple[int, list[tuple[int, bytes]]]:
    """Where the last lines begin, and their bytes. A line ends at a line feed and at nothing else, or at a gap."""
    kept: list[tuple[int, bytes]] = []
    for start, data in reversed(stretches):
        at = len(data)
        while wanted > 0 and at > 0:
            at = data.rfind(b"\n", 0, at - 1) + 1
            wanted -= 1
        if at < len(data):
            kept.insert(0, (start + at, data[at:]))
        if wanted <= 0:
            return start + at, kept
    return begin, kept


def _joined(stretches: list[tuple[int, bytes]], begin: int) -> bytes:
    at, out = begin, b""
    for start, data in stretches:
        if start > at:
            out += b"\n" if out and not out.endswith(b"\n") else b""
            out += f"[dflash] {start - at} bytes are not kept here\n".encode()
        out += data
        at = start + len(data)
    return out


def _part(piece: Piece, at: int, limit: int) -> bytes:
    """Bytes of a piece as it was listed: it may have grown since."""
    if limit <= 0:
        return b""
    try:
        with piece.path.open("rb") as file:
            file.seek(at - piece.start)
            return file.read(min(limit, piece.end - at))
    except FileNotFoundError:
        return b""  # dropped since it was listed: the next piece shows the gap


def _write(path: Path, start: int, data: bytes) -> Piece:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
    return Piece(path, start, path.stat().st_size)
