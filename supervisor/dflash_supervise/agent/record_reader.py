"""Read records onward from a cursor while an agent appends, rotates and thins them, here or in the spare folder."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from dflash_supervise.agent.files import decode_json
from dflash_supervise.agent.records import EPHEMERAL, NO_FOLDER, Segment, list_segments, segment_path, segments_there

Key = Tuple[str, int]  # (epoch, seq)


class RecordReader:
    """Each record once and in order. A cursor of an unknown epoch starts from the very beginning: the receiver knows
    records by (epoch, seq), and one too many is better than one too few."""

    def __init__(self, folder: str, cursor: Optional[Key] = None, spare: Optional[str] = None) -> None:
        """spare: where the agent keeps records while ``folder`` takes none (``record_writer``)."""
        self._home = _Trail(folder, needed=spare is None)
        self._spare = _Trail(spare) if spare is not None else None
        self._cursor = cursor
        self._told: Key = ("", 0)
        self._ahead: List[Dict[str, Any]] = []  # read from the spare folder and not told yet
        self._begun = False
        self._caught_up = False  # with the workspace, as of the last look

    @property
    def skipped_lines(self) -> int:
        """Lines that a crash tore."""
        return self._home.skipped_lines

    def read(self, limit_bytes: int = 256 * 1024) -> List[Dict[str, Any]]:
        """The next records, about ``limit_bytes`` of them; empty when there are none for now.

        What is more than an observation is synced before it is returned: a reader never knows of a decision that a
        power loss could still undo, as long as the workspace takes records.

        Raises:
            OSError: the folder or a segment cannot be read.
        """
        if not self._begun and not self._begin():
            return []
        while True:
            # The spare folder first: whatever is older than what it holds at this moment is at home by now, so when
            # home has been read to its end after that, nothing is missing between the two.
            if self._spare is not None and not self._ahead:
                self._ahead = self._spare.next(limit_bytes, self._told)
            records = self._at_home(limit_bytes)
            if not records:
                ahead, self._ahead = self._ahead, []
                records = [record for record in ahead if _key(record) > self._told]
                if ahead and not records:
                    continue  # home had them all; there may be more behind them
            if records:
                self._told = _key(records[-1])
            return records

    def _at_home(self, limit_bytes: int) -> List[Dict[str, Any]]:
        """The next records of the workspace. One that broke under a reader who had read it all holds nothing new."""
        try:
            records = self._home.next(limit_bytes, self._told)
        except OSError:
            if self._spare is None or not self._caught_up:
                raise
            return []
        self._caught_up = not records
        return records

    def _begin(self) -> bool:
        trails = [self._home] + ([self._spare] if self._spare is not None else [])
        folders = [trail.segments() for trail in trails]
        if not any(folders):
            return False
        if self._cursor is not None and any(s.epoch == self._cursor[0] for found in folders for s in found):
            self._told = self._cursor
            for trail, found in zip(trails, folders):
                trail.skip_to(found, *self._cursor)
        self._begun = True
        return True


@dataclass(frozen=True)
class _Place:
    """Where a reader stands in a segment."""

    epoch: str = ""
    number: int = 0
    inode: int = 0
    offset: int = 0


class _Trail:
    """The segments of one folder, read to their end and on."""

    def __init__(self, folder: str, needed: bool = False) -> None:
        """needed: something that is no folder in its place is an error, else as good as nothing."""
        self._folder = folder
        self._needed = needed
        self._place = _Place()
        self.skipped_lines = 0

    def segments(self) -> List[Segment]:
        return list_segments(self._folder) if self._needed else segments_there(self._folder)

    def skip_to(self, segments: List[Segment], epoch: str, seq: int) -> None:
        """Begin with the segment that holds the record after the cursor."""
        same = [segment for segment in segments if segment.epoch == epoch]
        if not same:
            return
        first = same[0]
        for segment in same[1:]:
            if _first_seq(segment.path) > seq:
                break
            first = segment
        self._place = _Place(first.epoch, first.number)

    def next(self, limit_bytes: int, told: Key) -> List[Dict[str, Any]]:
        """The next records above ``told``; empty at the end."""
        # Listed before reading: a later segment seen here means that the earlier one is complete.
        segments = self.segments()
        while True:
            place = self._place
            records, at_end = self._read(place, limit_bytes, told) if place.number else ([], True)
            if records:
                return records
            if not at_end:
                continue  # all of this piece was told before
            later = [s for s in segments if (s.epoch, s.number) > (place.epoch, place.number)]
            if not later:
                return []
            self._place = _Place(later[0].epoch, later[0].number)

    def _read(self, place: _Place, limit_bytes: int, told: Key) -> Tuple[List[Dict[str, Any]], bool]:
        try:
            fd = os.open(segment_path(self._folder, place.epoch, place.number), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ENOENT, *NO_FOLDER):
                raise
            return [], True  # the folder was taken away under us; a later segment may be there
        try:
            inode = os.fstat(fd).st_ino
            # Another inode is the thinned copy: offsets mean nothing there, what was told is known by seq.
            offset = place.offset if inode == place.inode else 0
            data = os.pread(fd, limit_bytes, offset)
            end = data.rfind(b"\n") + 1
            if not end and len(data) == limit_bytes:
                return self._read(place, limit_bytes * 4, told)
            records = self._new(data[:end], told)
            if any(record.get("kind") not in EPHEMERAL for record in records):
                os.fsync(fd)
        finally:
            os.close(fd)
        self._place = _Place(place.epoch, place.number, inode, offset + end)
        return records, not end

    def _new(self, data: bytes, told: Key) -> List[Dict[str, Any]]:
        records = []
        for line in data.splitlines():
            try:
                record = decode_json(line)
                key = _key(record)
            except (ValueError, KeyError, TypeError, OverflowError):
                self.skipped_lines += 1
                continue
            if key > told:
                told = key
                records.append(record)
        return records


def _key(record: Dict[str, Any]) -> Key:
    return str(record["epoch"]), int(record["seq"])


def _first_seq(path: str) -> int:
    """The first seq of a segment; -1 when it has no whole line, so that the search goes on."""
    try:
        with open(path, "rb") as file:
            return int(decode_json(file.readline())["seq"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return -1
