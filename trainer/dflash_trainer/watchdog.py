"""Ends the process when nothing has moved for too long: seen from inside, with every thread's stack.

It only watches; it never writes progress, so it cannot make a dead loop look alive.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dflash_trainer import exits, log

POLL_S = 1.0


def overdue_s(*, moved_at: float, now: float, limit_s: float) -> float | None:
    """Seconds that nothing moved if that is beyond the limit; a limit of 0 is no limit."""
    still_s = now - moved_at
    return still_s if limit_s > 0 and still_s > limit_s else None


def start(
    moved_at: Callable[[], float], limit_s: Callable[[], float], stacks: Path, show_others: Callable[[], None]
) -> None:
    """Watch until the process ends.

    Args:
        moved_at: time.monotonic() of the last movement.
        limit_s: the limit of the phase that the loop is in, 0 for none.
        show_others: lets worker processes write their stacks behind ours.
    """
    arguments = (moved_at, limit_s, stacks, show_others)
    threading.Thread(target=_watch, args=arguments, name="watchdog", daemon=True).start()


def _watch(
    moved_at: Callable[[], float], limit_s: Callable[[], float], stacks: Path, show_others: Callable[[], None]
) -> None:
    pause = threading.Event()
    while True:
        limit = limit_s()
        pause.wait(POLL_S)
        still_s = overdue_s(moved_at=moved_at(), now=time.monotonic(), limit_s=limit)
        if still_s is not None:
            with stacks.open("a", encoding="utf-8") as out:
                faulthandler.dump_traceback(file=out, all_threads=True)
            show_others()
            log.error("exit", f"code={exits.STALLED} reason=nothing moved for {still_s:.0f} s stacks={stacks}")
            log.flush()
            os._exit(exits.STALLED)
