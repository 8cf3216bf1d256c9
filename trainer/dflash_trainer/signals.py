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
    faulthandler.register(signal.SIGUSR1, file=out, all_threads=True, chain=False)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=sys.stderr, all_threads=True)
    return stop, out
