"""Read records onward from a cursor while an agent appends, rotates and thins them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from dflash_supervise.agent.records import EPHEMERAL, Segment, list_segments


@dataclass(frozen=True)
class Place:
    """Where the reader stands in a segment."""

    epoch: str
    number: int
    inode: int = 0
    offset: int = 0


class RecordReader:
    """Each record once and in order. A cursor of an unknown epoch starts from the very beginning: the receiver knows
    records by (epoch, seq), and one too many is better than one too few."""

    def __init__(self, folder: str, cursor: Optional[Tuple[str, int]] = None) -> None:
        self.folder = folder
        self._cursor = cursor
        self._place: Optional[Place] = None
        self._epoch = ""
        self._seq = 0
        self.skipped_lines = 0  # torn by a crash

    def read(self, limit_bytes: int = 256 * 1024) -> List[Dict[str, Any]]:
        """The next records, about ``limit_bytes`` of them; empty when there are none for now.

        What is more than an observation is synced to disk before it is returned: a reader never knows of a decision
        that a power loss could still undo.

        Raises:
            OSError: the folder or a segment cannot be read.
        """
        # Listed before reading: a later segment seen here means that the earlier one is complete.
        segments = list_segments(self.folder)
        if self._place is None and not self._begin(segments):
            return []
        while True:
            place = self._place
            assert place is not None
            records, at_end = self._read_segment(place, limit_bytes)
            if records:
                return records
            if not at_end:
                continue  # all of this piece was told before
            later = [s for s in segments if (s.epoch, s.number) > (place.epoch, place.number)]
            if not later:
                return []
            self._place = Place(later[0].epoch, later[0].number)

    def _begin(self, segments: List[Segment]) -> bool:
        if not segments:
            return False
        first = segments[0]
        if self._cursor is not None:
            epoch, seq = self._cursor
            same = [segment for segment in segments if segment.epoch == epoch]
            if same:
                self._epoch, self._seq = epoch, seq
                first = same[0]
                for segment in same[1:]:
                    if _first_seq(segment.path) > seq:
                        break
                    first = segment
        self._place = Place(first.epoch, first.number)
        return True

    def _read_segment(self, place: Place, limit_bytes: int) -> Tuple[List[Dict[str, Any]], bool]:
        path = os.path.join(self.folder, f"{place.epoch}.{place.number:04d}.jsonl")
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return [], True  # the folder was taken away under us; a later segment may be there
        try:
            inode = os.fstat(fd).st_ino
            # Another inode is the thinned copy: offsets mean nothing there, what was told is known by seq.
            offset = place.offset if inode == place.inode else 0
            data = os.pread(fd, limit_bytes, offset)
            end = data.rfind(b"\n") + 1
            if not end and len(data) == limit_bytes:
                return self._read_segment(place, limit_bytes * 4)
            records = self._new(data[:end])
            if any(record.get("kind") not in EPHEMERAL for record in records):
                os.fsync(fd)
        finally:
            os.close(fd)
        self._place = Place(place.epoch, place.number, inode, offset + end)
        return records, not end

    def _new(self, data: bytes) -> List[Dict[str, Any]]:
        records = []
        for line in data.splitlines():
            try:
                record = json.loads(line.decode("utf-8"))
                epoch, seq = str(record["epoch"]), int(record["seq"])
            except (ValueError, KeyError, TypeError):
                self.skipped_lines += 1
                continue
            if epoch == self._epoch and seq <= self._seq:
                continue
            self._epoch, self._seq = epoch, seq
            records.append(record)
        return records


def _first_seq(path: str) -> int:
    """The first seq of a segment; -1 when it has no whole line, so that the search goes on."""
    try:
        with open(path, "rb") as file:
            return int(json.loads(file.readline().decode("utf-8"))["seq"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1
