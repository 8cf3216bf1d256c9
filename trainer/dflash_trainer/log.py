"""Log lines on stdout: time, level, part, then key=value pairs. One write a line, so threads do not mix."""

from __future__ import annotations

import sys
import threading
import time
import traceback

_lock = threading.Lock()


def info(part: str, message: str) -> None:
    _emit("INFO", part, message)


def warning(part: str, message: str) -> None:
    _emit("WARNING", part, message)


def error(part: str, message: str) -> None:
    _emit("ERROR", part, message)


def worker_exception(name: str, exc: BaseException) -> None:
    """Print an exception the way `threading` does, whole and in one piece."""
    text = "".join(traceback.format_exception(exc))
    with _lock:
        sys.stderr.write(f"Exception in thread {name}:\n{text}")
        sys.stderr.flush()


def flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _emit(level: str, part: str, message: str) -> None:
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    with _lock:
        sys.stdout.write(f"{stamp},{int(now % 1 * 1000):03d} {level} [{part}] {message}\n")
        sys.stdout.flush()
