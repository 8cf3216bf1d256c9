"""Which processes of a test are still there, whoever their parent is now."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MARKER = "LAB_TEST"  # environment variable that every process of one test inherits
PROC = Path("/proc")
POLL_S, POLL_MOST_S = 0.02, 0.2  # a look costs CPU that the test's own processes want: ever more rarely


@dataclass(frozen=True)
class Process:
    """One process at one moment; pid and start time together name it for ever."""

    pid: int
    ppid: int
    start_ticks: int
    state: str
    comm: str
    argv: tuple[str, ...]
    environment: frozenset[str]  # "NAME=value"; empty when it cannot be read

    def __str__(self) -> str:
        command = " ".join(self.argv) or f"[{self.comm}]"
        return f"pid {self.pid} (state {self.state}, parent {self.ppid}): {command[:300]}"

    @property
    def is_tmux_server(self) -> bool:
        return self.comm.startswith("tmux: server")


def look(pid: int) -> Process | None:
    """The process with this pid, or None when there is none."""
    folder = PROC / str(pid)
    try:
        head, _, tail = (folder / "stat").read_text(errors="replace").rpartition(")")
        argv = (folder / "cmdline").read_bytes()
    except OSError:
        return None
    try:
        environment = (folder / "environ").read_bytes()
    except OSError:
        environment = b""  # another user's process, or one that is just ending
    fields = tail.split()
    return Process(
        pid=pid,
        ppid=int(fields[1]),
        start_ticks=int(fields[19]),
        state=fields[0],
        comm=head.partition("(")[2],
        argv=tuple(_words(argv)),
        environment=frozenset(_words(environment)),
    )


def everything() -> Iterator[Process]:
    """Every living process; zombies hold nothing and are left out."""
    for entry in PROC.iterdir():
        process = look(int(entry.name)) if entry.name.isdigit() else None
        if process is not None and process.state not in "ZX":
            yield process


def of_test(marker: str, *folders: Path) -> list[Process]:
    """Processes that carry the test's marker, or name one of its folders in command line or environment.

    The environment of a trainer names its run folder by DFLASH_ATTEMPT_DIR, also when something on the way
    scrubbed the marker. This process and its ancestors are left out: a test runner may well be told a folder.
    """
    token = f"{MARKER}={marker}"
    names = [str(folder) for folder in folders]
    own = _ancestors(os.getpid())
    found = []
    for pid in _mentioning([token, *names]):
        process = look(pid)
        if process is None or process.state in "ZX" or pid in own:
            continue
        words = (*process.argv, *(word for word in process.environment if word.startswith("DFLASH_")))
        if token in process.environment or any(name in word for word in words for name in names):
            found.append(process)
    return found


def send(process: Process, number: int = signal.SIGKILL) -> bool:
    """Signal exactly this process; False when it is gone or its pid was given to another."""
    now = look(process.pid)
    if now is None or now.start_ticks != process.start_ticks:
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition: Callable[[], bool], within_s: float) -> bool:
    """True as soon as the condition holds, False when it does not within the time."""
    deadline, pause_s = time.monotonic() + within_s, POLL_S
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, POLL_MOST_S)
    return True


def _mentioning(words: list[str]) -> list[int]:
    """Pids with one of the words anywhere in their command line or environment, which is quick to find out."""
    wanted = [os.fsencode(word) for word in words]
    found = []
    for name in os.listdir(PROC):
        if name.isdigit():
            told = _bytes(f"{PROC}/{name}/environ") + _bytes(f"{PROC}/{name}/cmdline")
            if any(word in told for word in wanted):
                found.append(int(name))
    return found


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""


def _ancestors(pid: int) -> frozenset[int]:
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        process = look(pid)
        pid = process.ppid if process is not None else 0
    return frozenset(found)


def _words(raw: bytes) -> list[str]:
    return [os.fsdecode(word) for word in raw.split(b"\0") if word]
