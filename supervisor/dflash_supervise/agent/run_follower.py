"""Follow one run for a peer: its records from a cursor, its log bytes from an offset, on into later attempts."""

from __future__ import annotations

import base64
import os
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple

from dflash_supervise.agent import shapes
from dflash_supervise.agent.files import attempt_numbers, read_json
from dflash_supervise.agent.record_reader import RecordReader

POLL_S = 0.2
LOG_CHUNK_BYTES = 96 * 1024
LOG_BYTES_PER_S = 1_000_000
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
HEAD_BYTES = 1 << 20  # the daemon keeps the first MiB and the last 16 MiB of a log
TAIL_BYTES = 16 << 20


class RunFollower:
    """A thread that sends a run's news through ``send(line, wait)`` until it is stopped or the peer is gone."""

    def __init__(
        self,
        run_dir: str,
        run_id: str,
        cursor: Optional[Tuple[str, int]],
        log: Tuple[int, int],
        send: Callable[[Dict[str, Any], bool], bool],
        spare: Optional[str] = None,
    ) -> None:
        """spare: see ``RecordReader``."""
        self._run_dir = run_dir
        self._run_id = run_id
        self._reader = RecordReader(os.path.join(run_dir, "records"), cursor, spare)
        self._attempt, self._offset = log
        self._send = send
        self._stopped = threading.Event()
        self._trouble = ""
        self._foreign = False
        self._allowed_at = 0.0

    def start(self) -> None:
        """Begin to follow."""
        threading.Thread(target=self._run, name="follow", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end; it does so after what it is reading now."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                busy = self._records() or self._log()
                self._say_trouble("")
            except OSError as error:
                busy = False
                self._say_trouble(str(error))
            except Exception as fault:  # noqa: BLE001 - shown to the peer; a thread that dies would mute the run
                busy = False
                self._say_trouble(f"following failed: {fault!r}")
            if not busy:
                self._stopped.wait(POLL_S)

    def _records(self) -> bool:
        records = self._reader.read()
        for record in records:
            if self._stopped.is_set() or not self._send({"t": "rec", "rec": record}, True):
                self._stopped.set()
                return False
        return bool(records)

    def _log(self) -> bool:
        """Send the next piece of log, at most 1 MB a second; True when there may be more at once."""
        if time.monotonic() < self._allowed_at:
            return False
        newest = self._newest_attempt()
        if newest == 0:
            return False
        if self._attempt == 0:
            self._attempt, self._offset = self._first_attempt(newest), 0
        data, size = self._piece()
        if data:
            line = {
                "t": "log",
                "run": self._run_id,
                "attempt": self._attempt,
                "offset": self._offset,
                "data": base64.b64encode(data).decode("ascii"),
            }
            if not self._send(line, True):
                self._stopped.set()
            self._offset += len(data)
            self._allowed_at = time.monotonic() + len(data) / LOG_BYTES_PER_S
            return True
        if size < self._offset:
            self._offset = 0  # truncated in place: the new text has the offsets of the new file
            return True
        later = self._first_attempt(newest, after=self._attempt)
        if later > self._attempt:
            self._attempt, self._offset = later, 0
            return True
        return False

    def _piece(self) -> Tuple[bytes, int]:
        folder = os.path.join(self._run_dir, "attempts", str(self._attempt))
        # An adopted run's log is its own; the agent has written down where it lies.
        foreign = self._named(folder) if self._foreign else None
        try:
            fd = os.open(foreign or os.path.join(folder, "train.log"), FLAGS | (0 if foreign else os.O_NOFOLLOW))
        except FileNotFoundError:
            self._foreign = True
            return b"", self._offset
        try:
            size = os.fstat(fd).st_size
            if HEAD_BYTES <= self._offset < size - TAIL_BYTES:
                self._offset = size - TAIL_BYTES  # a gap the daemon marks; older ranges are asked for
            return os.pread(fd, LOG_CHUNK_BYTES, self._offset), size
        finally:
            os.close(fd)

    def _named(self, folder: str) -> Optional[str]:
        path: Optional[str] = (shapes.child(read_json(os.path.join(folder, "child.json"))) or {}).get("log")
        return path

    def _newest_attempt(self) -> int:
        return max(attempt_numbers(self._run_dir), default=0)

    def _first_attempt(self, newest: int, after: int = 0) -> int:
        return min([number for number in attempt_numbers(self._run_dir) if number > after] or [newest])

    def _say_trouble(self, text: str) -> None:
        if text != self._trouble:
            self._trouble = text
            self._send({"t": "follow_trouble", "run": self._run_id, "message": text}, False)
