"""Follow an attempt's log and feed the scanner: not there yet, growing, rotated by rename, truncated in place.

Every byte is fed once and in order; a cut never joins two lines that the file did not join.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Optional, Union

from dflash_supervise.core.facts import LogReading, Missing
from dflash_supervise.core.logscan import LogScanner

CHUNK_BYTES = 64 * 1024
LOOK_S = 0.2  # scanning time in one look: a log that pours in cannot hold up the other readings


class LogTail:
    """One log by its path. ``look`` does the reading and may block as long as the file system does."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.scanner = LogScanner()
        self.rotations = 0
        self.truncations = 0
        self._fd: Optional[int] = None
        self._inode = 0
        self._offset = 0
        self._size = 0
        self._mid_line = False
        self._caught_up = False
        self._trouble: Optional[str] = None

    def look(self) -> Union[LogReading, Missing]:
        """Read on from where the last look ended and say what is known of the log now."""
        deadline = time.monotonic() + LOOK_S
        self._trouble = None
        while time.monotonic() < deadline:
            if not self._step():
                break
        self._caught_up = self._caught_up or self.behind_bytes == 0
        return self.reading()

    @property
    def behind_bytes(self) -> int:
        """Bytes of the current file that were not scanned yet."""
        return max(0, self._size - self._offset)

    def reading(self) -> Union[LogReading, Missing]:
        """The log as of the last look; Missing until its old part has been read once (a fresh agent, a large log)."""
        if self._trouble is not None:
            return Missing(self._trouble)
        if self._fd is None and not self._inode:
            return LogReading(exists=False)
        if not self._caught_up:
            return Missing(f"the log is being read: {self._offset} of {self._size} bytes")
        return self.scanner.reading(exists=True, size_bytes=self._size)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _step(self) -> bool:
        """One read; False when there is nothing more for now."""
        if self._fd is None and not self._open():
            return False
        assert self._fd is not None
        self._size = os.fstat(self._fd).st_size
        if self._size < self._offset:
            self.truncations += 1
            self._offset = 0
            self._break_line()
        data = os.pread(self._fd, CHUNK_BYTES, self._offset)
        if data:
            self.scanner.feed(data)
            self._offset += len(data)
            self._mid_line = not data.endswith(b"\n")
            return True
        return self._reopen_if_rotated()

    def _open(self) -> bool:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._trouble = f"the log cannot be opened: {error.strerror}"
            return False
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            self._trouble = "the log is not a regular file"
            return False
        self._fd, self._inode, self._offset = fd, status.st_ino, 0
        return True

    def _reopen_if_rotated(self) -> bool:
        """Renamed away and a new file in its place: the old one has been read to its end, go on in the new one."""
        assert self._fd is not None
        try:
            same = os.stat(self.path).st_ino == self._inode
        except OSError:
            return False  # renamed away and nothing new yet: late writes may still come to the old one
        if same:
            return False
        # A write between the last read and the rename would be lost without this look.
        if os.fstat(self._fd).st_size > self._offset:
            return True
        os.close(self._fd)
        self._fd = None
        self.rotations += 1
        self._break_line()
        return True

    def _break_line(self) -> None:
        if self._mid_line:
            self.scanner.feed(b"\n")
            self._mid_line = False
