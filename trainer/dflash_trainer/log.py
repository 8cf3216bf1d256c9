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
    _print(f"Exception in thread {name}:\n{''.join(traceback.format_exception(exc))}")


def process_exception(name: str, text: str) -> None:
    """Print a worker process's traceback the way `multiprocessing` does, whole and in one piece."""
    _print(f"Process {name}:\n{text}")


def flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _print(text: str) -> None:
    with _lock:
        sys.stderr.write(text)
        sys.stderr.flush()


def _emit(level: str, part: str, message: str) -> None:
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    with _lock:
        sys.stdout.write(f"{stamp},{int(now % 1 * 1000):03d} {level} [{part}] {message}\n")
        sys.stdout.flush()
