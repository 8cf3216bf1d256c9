"""SIGTERM sets a flag that the loop looks at; SIGUSR1 writes every thread's stack to a file of its own."""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import IO

from dflash_trainer.exits import StoppedError


class StopFlag:
    """Set by SIGTERM. Looked at only where the training state is whole."""

    def __init__(self) -> None:
        self.asked = False

    def check(self) -> None:
        """Raises:
        StoppedError: SIGTERM has arrived.
        """
        if self.asked:
            raise StoppedError("SIGTERM")

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self.asked = True


def install(stacks: Path) -> tuple[StopFlag, IO[str]]:
    """Install both handlers; the returned file stays open for the life of the process.

    Stacks do not go to the log: there they would look like growth, and a hung run must not grow.
    """
    stop = StopFlag()
    signal.signal(signal.SIGTERM, stop._handle)
    out = stacks.open("a", encoding="utf-8")
    # the dump is written first, whatever any thread does; the handler behind it wakes up whoever `on_dump` names
    signal.signal(signal.SIGUSR1, _nothing)
    faulthandler.register(signal.SIGUSR1, file=out, all_threads=True, chain=True)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=sys.stderr, all_threads=True)
    return stop, out


def on_dump(fd: int) -> None:
    """From now on each signal writes its number into this non-blocking descriptor, a SIGUSR1 behind its dump.

    The write happens in the C handler: a main thread that waits for ever does not hold it up.
    """
    signal.set_wakeup_fd(fd, warn_on_full_buffer=False)


def _nothing(signum: int, frame: FrameType | None) -> None:
    pass
