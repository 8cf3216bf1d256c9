"""Who may write into a checkpoint folder: an owner file with the attempt as fence.

A later attempt of the same run takes the folder over; the earlier one sees that before it writes and ends.
Another run takes it only when its owner is dead on this host.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from dflash_trainer.attempt import Attempt
from dflash_trainer.exits import FencedError
from dflash_trainer.files import write_json


@dataclass(frozen=True, slots=True)
class Owner:
    """start: the process's start time in clock ticks, so that a reused pid is not mistaken for it."""

    run: str
    attempt: int
    host: str
    pid: int
    start: int | None


def claim(folder: Path, attempt: Attempt) -> Owner:
    """Become the owner.

    Raises:
        FencedError: a later attempt owns the folder, or a living process that is not an earlier attempt of ours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    me = Owner(attempt.run, attempt.number, socket.gethostname(), os.getpid(), start_ticks(os.getpid()))
    with (folder / ".owner.lock").open("w", encoding="utf-8") as lock, closing(lock):
        fcntl.flock(lock, fcntl.LOCK_EX)
        present = read(folder)
        if present is not None and present != me:
            _refuse(folder, present, me)
        write_json(folder / "OWNER.json", asdict(me), durable=True)
    return me


def check(folder: Path, me: Owner) -> None:
    """Raises:
    FencedError: the folder is no longer ours; nothing may be written there any more.
    """
    present = read(folder)
    if present != me:
        now = "nobody" if present is None else f"{present.run}:{present.attempt} (pid {present.pid})"
        raise FencedError(f"{folder} belongs to {now}, not to {me.run}:{me.attempt}")


def read(folder: Path) -> Owner | None:
    try:
        return Owner(**json.loads((folder / "OWNER.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def start_ticks(pid: int) -> int | None:
    """Start time from /proc, None when the process is gone or there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _refuse(folder: Path, present: Owner, me: Owner) -> None:
    same_run = present.run == me.run
    if same_run and present.attempt > me.attempt:
        raise FencedError(f"{folder}: attempt {present.attempt} owns it, this is attempt {me.attempt}")
    if same_run and present.attempt < me.attempt:
        return
    if present.host != me.host:
        if not same_run:
            raise FencedError(
                f"{folder}: run {present.run} on host {present.host} owns it; remove OWNER.json if it is over"
            )
        return
    if _lives(present):
        raise FencedError(f"{folder}: run {present.run}, pid {present.pid}, owns it and lives")


def _lives(owner: Owner) -> bool:
    if owner.start is None:
        try:
            os.kill(owner.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
    return start_ticks(owner.pid) == owner.start
