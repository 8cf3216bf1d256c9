"""Runs the installed program: with pipes, or in a pseudo-terminal where it may ask."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("dflash-supervise"))
LIMIT_S = 90.0


def run(*arguments: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """The program with its output in pipes; its input is empty."""
    return subprocess.run(
        [PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False
    )


@dataclass
class Terminal:
    """The program in a pseudo-terminal of 80 columns."""

    process: subprocess.Popen[bytes]
    master: int
    seen: str = ""

    def until(self, wanted: str) -> str:
        """Read until the text was shown; everything that was.

        Raises:
            AssertionError: it was not, within the limit or before the program ended.
        """
        deadline = time.monotonic() + LIMIT_S
        while wanted not in self.seen:
            assert time.monotonic() < deadline, f"{wanted!r} was not shown:\n{self.seen}"
            if not self._read():
                break
        assert wanted in self.seen, f"{wanted!r} was not shown:\n{self.seen}"
        return self.seen

    def type(self, text: str, *, pause_s: float = 0.0) -> None:
        """Keys with a pause between them: tmux takes what comes within a millisecond for a paste, not for keys."""
        for key in text if pause_s else [text]:
            os.write(self.master, key.encode())
            time.sleep(pause_s)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Read to the end; the exit status."""
        deadline = time.monotonic() + LIMIT_S
        while self._read():
            assert time.monotonic() < deadline, f"it goes on:\n{self.seen[-2000:]}"
        return self.process.wait(LIMIT_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], 1.0)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


def terminal(*arguments: str) -> Terminal:
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    process = subprocess.Popen([PROGRAM, *arguments], stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    return Terminal(process, master)
