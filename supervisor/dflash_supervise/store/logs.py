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

    def read(self, run_id: str, attempt: int, offset: int, limit: int) -> tuple[bytes, int]:
        """At most ``limit`` bytes from ``offset``, and where to go on. A gap is one line that names its size."""
        at, out = offset, b""
        for piece in self._pieces(self._folder(run_id, attempt)):
            if piece.end <= at or len(out) >= limit:
                continue
            if piece.start > at:
                out += b"\n" if out and not out.endswith(b"\n") else b""
                out += f"[dflash] {piece.start - at} bytes are not kept here\n".encode()
                at = piece.start
            part = _part(piece, at, limit - len(out))
            out += part
            at += len(part)
        return out, at

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


def _part(piece: Piece, at: int, limit: int) -> bytes:
    if limit <= 0:
        return b""
    try:
        with piece.path.open("rb") as file:
            file.seek(at - piece.start)
            return file.read(limit)
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
