"""The pane follower: what a person sees who attaches. It prints the newest attempt's log and moves on to later ones."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, Dict, Optional

from dflash_supervise.agent.files import read_json
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.agent.start import NotStarted, ensure_agent

POLL_S = 0.25
CHUNK_BYTES = 64 * 1024
START_TAIL_BYTES = 256 * 1024  # a pane that is opened late begins with the end of a large log


def main(run_dir: str, options: Dict[str, Any], out_fd: int = 1) -> int:
    """Start the run's agent if there is none, then print until the run is final. 0; 1 when no agent comes up."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    runtime = Runtime.open(proc_root=options.get("proc_root", "/proc"))
    pane = Pane(run_dir, runtime.in_run(os.path.basename(run_dir), ""), out_fd)
    if pane.final() is None:
        try:
            ensure_agent(runtime, run_dir)
        except NotStarted as error:
            sys.stderr.write(f"[dflash] {error}\n")
            return 1
    while not pane.step():
        time.sleep(POLL_S)
    return 0


class Pane:
    """Where the pane stands: attempt and offset."""

    def __init__(self, run_dir: str, spare: str, out_fd: int) -> None:
        """spare: where the last word lies when the run directory is gone."""
        self._run_dir = run_dir
        self._spare = spare
        self._out_fd = out_fd
        self._attempt = 0
        self._fd: Optional[int] = None
        self._offset = 0

    def final(self) -> Optional[Dict[str, Any]]:
        """The last word of the run's agent."""
        found = (read_json(os.path.join(folder, "final.json")) for folder in (self._run_dir, self._spare))
        return next((final for final in found if final is not None), None)

    def step(self) -> bool:
        """Print what is new; True when the run is final and everything was printed."""
        # Looked at before the log: what was written before the end is printed before the last line.
        final = self.final()
        newest = self._newest()
        if newest > self._attempt:
            self._print_rest()
            self._open(newest)
        self._print_rest()
        if final is None or (self._fd is None and newest > 0):
            return False
        verdict = "[dflash] the run is over: {}, cause {}\n".format(final.get("verdict"), final.get("cause"))
        self._write(verdict.encode("utf-8"))
        return True

    def _newest(self) -> int:
        try:
            names = os.listdir(os.path.join(self._run_dir, "attempts"))
        except OSError:
            return 0
        return max([int(name) for name in names if name.isdigit()] or [0])

    def _open(self, attempt: int) -> None:
        path = os.path.join(self._run_dir, "attempts", str(attempt), "train.log")
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # not there yet: the next step looks again
        if self._fd is not None:
            os.close(self._fd)
        size = os.fstat(fd).st_size
        first = self._attempt == 0
        self._fd, self._attempt = fd, attempt
        self._offset = size - START_TAIL_BYTES if first and size > START_TAIL_BYTES else 0

    def _print_rest(self) -> None:
        while self._fd is not None:
            if os.fstat(self._fd).st_size < self._offset:
                self._offset = 0
            data = os.pread(self._fd, CHUNK_BYTES, self._offset)
            if not data:
                return
            self._write(data)
            self._offset += len(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._out_fd, view) :]
