"""The pane follower: what a person sees who attaches. It prints the newest attempt's log and moves on to later ones.

The end of a run is not its own: a person may start the run again. In a pane it waits for that, and keeps the last
words readable; long after them it goes, and the session with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any, Dict, Optional

from dflash_supervise.agent.files import read_json
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.agent.start import NotStarted, ensure_agent

POLL_S = 0.25
REST_S = 1.0  # between looks for another attempt of a run that is over
KEEP_S = 24 * 3600.0  # how long a session outlives its run: somebody may come to read it on the next day
KEEP_GONE_S = 600.0  # the same where the run directory was deleted: no attempt can come
TMUX_S = 10.0
CHUNK_BYTES = 64 * 1024
START_TAIL_BYTES = 256 * 1024  # a pane that is opened late begins with the end of a large log


def main(run_dir: str, options: Dict[str, Any], out_fd: int = 1) -> int:
    """Start the run's agent if there is none, and print the log.

    Returns:
        0: the run is over, and for so long, where this is the program of a tmux pane, that nobody waits for more of it.
        1: no agent comes up. A pane goes on all the same: the daemon asks for the agent again.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    runtime = Runtime.open(proc_root=options.get("proc_root", "/proc"))
    pane = Pane(run_dir, runtime.in_run(os.path.basename(run_dir), ""), out_fd)
    waits = _is_program_of_pane()
    if pane.final() is None:
        try:
            ensure_agent(runtime, run_dir)
        except NotStarted as error:
            sys.stderr.write(f"[dflash] {error}\n")
            if not waits:
                return 1
    over_since: Optional[float] = None
    while True:
        if not pane.step():
            over_since = None
            time.sleep(POLL_S)
            continue
        now = time.monotonic()
        over_since = now if over_since is None else over_since
        if not waits or now - over_since >= keep_s(run_dir, options):
            break
        time.sleep(REST_S)
    if waits:
        _leave_no_dead_pane()
    return 0


def keep_s(run_dir: str, options: Dict[str, Any]) -> float:
    """How long the pane of a run that is over is kept, in seconds after its last word."""
    there = os.path.isdir(run_dir)
    return float(options.get("pane_keep_s", KEEP_S)) if there else KEEP_GONE_S


def _is_program_of_pane() -> bool:
    """Whether tmux started us as a pane, rather than a shell in one: a person at a prompt wants it back."""
    return "TMUX_PANE" in os.environ and os.getsid(0) == os.getpid()


def _leave_no_dead_pane() -> None:
    """End the session with us: our server keeps what a pane said before it ended, and this one was read."""
    command = ["tmux", "set-option", "-p", "-t", os.environ["TMUX_PANE"], "remain-on-exit", "off"]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TMUX_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return  # a dead pane stays


class Pane:
    """Where the pane stands: attempt, offset, and the last word that was told."""

    def __init__(self, run_dir: str, spare: str, out_fd: int) -> None:
        """spare: where the last word lies when the run directory is gone."""
        self._run_dir = run_dir
        self._spare = spare
        self._out_fd = out_fd
        self._attempt = 0
        self._fd: Optional[int] = None
        self._offset = 0
        self._told: Optional[Dict[str, Any]] = None
        self._within_line = False

    def final(self) -> Optional[Dict[str, Any]]:
        """The last word of the run's agent."""
        found = (read_json(os.path.join(folder, "final.json")) for folder in (self._run_dir, self._spare))
        return next((final for final in found if final is not None), None)

    def step(self) -> bool:
        """Print what is new; True while the run is over, with everything printed."""
        # Looked at before the log: what was written before the end is printed before the last line.
        final = self.final()
        newest = self._newest()
        if newest > self._attempt:
            self._print_rest()
            self._open(newest)
        self._print_rest()
        if final is not None and final != self._told:
            self._told = final
            self._say("the run is over: {}, cause {}".format(final.get("verdict"), final.get("cause")))
        return final is not None

    def _newest(self) -> int:
        try:
            names = os.listdir(os.path.join(self._run_dir, "attempts"))
        except OSError:
            return 0
        return max([int(name) for name in names if name.isascii() and name.isdecimal()] or [0])

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
        self._say(f"attempt {attempt}")

    def _print_rest(self) -> None:
        while self._fd is not None:
            try:
                if os.fstat(self._fd).st_size < self._offset:
                    self._offset = 0
                data = os.pread(self._fd, CHUNK_BYTES, self._offset)
            except OSError:
                return  # a disk that is away for a while must not end the view
            if not data:
                return
            self._write(data)
            self._offset += len(data)

    def _say(self, text: str) -> None:
        """A line of our own; a log that ended within one of its lines is not mixed with it."""
        self._write("{}[dflash] {}\n".format("\n" if self._within_line else "", text).encode("utf-8"))

    def _write(self, data: bytes) -> None:
        self._within_line = not data.endswith(b"\n")
        view = memoryview(data)
        while view:
            view = view[os.write(self._out_fd, view) :]
