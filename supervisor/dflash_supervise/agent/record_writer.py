"""Where the run's records go: into the workspace, and while that takes none, into this host's runtime folder.

A full, read-only or deleted workspace must not mute the screens. What was kept here goes home, in order, before the
workspace gets anything newer; readers look at both places (``record_reader``).
"""

from __future__ import annotations

import os
from collections import deque
from typing import Deque, List, Tuple

from dflash_supervise.agent.records import EPHEMERAL, SegmentWriter, list_segments

SPARE_SEGMENT_BYTES = 1 << 20
SPARE_BYTES = 8 << 20  # it is memory on most hosts; beyond this, observations of the older part are dropped
PENDING_BYTES = 4 << 20  # kept in this process while neither place takes them
RECENT_BYTES = 256 << 10  # what the workspace took last, in case it turns out to have lost it


class RecordWriter:
    """Takes a run's records in order. It does file work only; whoever may not block runs it in a lane."""

    def __init__(self, folder: str, spare: str, epoch: str) -> None:
        self.epoch = epoch
        self.trouble = ""  # why the workspace takes none, as of the last ``write``
        self._home = SegmentWriter(folder, epoch)
        self._spare = SegmentWriter(spare, epoch, SPARE_SEGMENT_BYTES, SPARE_BYTES)
        self._pending: List[bytes] = []
        self._pending_bytes = 0
        self._recent: Deque[bytes] = deque()
        self._recent_bytes = 0

    def write(self, lines: List[Tuple[str, bytes]], sync: bool) -> None:
        """Take (kind, line) pairs; with ``sync`` and without ``trouble`` they are on disk when this returns.

        Raises:
            OSError: neither place took them. They are kept, up to 4 MiB, and go first next time.
        """
        for kind, line in lines:
            if self._pending_bytes > PENDING_BYTES and kind in EPHEMERAL:
                continue
            self._pending.append(line)
            self._pending_bytes += len(line)
        try:
            self._bring_home()
            self._home.append(self._pending, sync)
        except OSError as error:
            self.trouble = str(error)
            self._spare.append([*self._recent, *self._pending], sync)
            self._forget_recent()
        else:
            self.trouble = ""
            self._remember(self._pending)
        self._pending, self._pending_bytes = [], 0

    def close(self) -> None:
        """Sync and let go of the files."""
        self._home.close()
        self._spare.close()

    def _bring_home(self) -> None:
        """Move what was kept here to the workspace, segment by segment; each is there before it is gone here."""
        for segment in list_segments(self._spare.folder):
            self._home.take_over(segment)
            self._spare.close()
            os.unlink(segment.path)

    def _remember(self, lines: List[bytes]) -> None:
        for line in lines:
            self._recent.append(line)
            self._recent_bytes += len(line)
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= len(self._recent.popleft())

    def _forget_recent(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0
