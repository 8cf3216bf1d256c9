"""What makes this daemon the only one: its state directory, lock, token, owner id, and the file that names it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dflash_supervise.config import Settings
from dflash_supervise.daemon import state_files

TOKEN_BYTES = 32


class AlreadyRunning(Exception):
    """Another daemon holds the lock of this state directory."""


@dataclass(frozen=True)
class Instance:
    """This daemon's hold on its state directory."""

    owner: str  # this supervisor's id in every spec, made once
    token: str = field(repr=False)


@contextlib.contextmanager
def hold(settings: Settings) -> Iterator[Instance]:
    """The state directory, locked for as long as the block runs.

    Raises:
        AlreadyRunning: with the pid of the other daemon where it is known.
        OSError: a file in it is not what we wrote there, or cannot be read; the text is for a person.
    """
    private_dir(settings.state_dir)
    descriptor = os.open(settings.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(_who_runs(settings, descriptor)) from error
        # Who holds the lock can be named also when the file that names the daemon is lost.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield _instance(settings)
    finally:
        # The lock ends with the descriptor, also when we are killed; the file itself stays.
        os.close(descriptor)


def write_daemon_file(settings: Settings, *, url: str, port: int, version: str) -> None:
    """Name this daemon for its clients: pid, start time, address."""
    facts = {"pid": os.getpid(), "start": start_ticks(os.getpid()), "port": port, "url": url, "version": version}
    path = settings.daemon_file
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    _write(beside, json.dumps(facts))
    beside.replace(path)


def read_daemon_file(settings: Settings) -> dict[str, Any] | None:
    """The daemon that is named there, None if there is none or it is not alive."""
    try:
        facts = state_files.facts(settings.daemon_file)
    except OSError:
        return None
    pid, start = facts.get("pid"), facts.get("start")
    if type(pid) is not int or type(facts.get("port")) is not int or not isinstance(facts.get("url"), str):
        return None
    alive = start_ticks(pid)
    return None if alive is None or (start is not None and alive != start) else facts


def start_ticks(pid: int) -> int | None:
    """With the pid it names a process for ever; None when there is no such process, -1 without a /proc."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return -1
        return -1
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def private_dir(path: Path) -> None:
    """A directory that only we may read, created so or made so.

    Raises:
        OSError: it cannot be made, belongs to somebody else, or is one that everybody writes into, such as /tmp.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = path.stat()
    if facts.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to uid {facts.st_uid}; set [daemon] state_dir to a folder of your own")
    if facts.st_mode & (stat.S_ISVTX | stat.S_IWOTH):
        raise PermissionError(f"{path} is shared by everybody; set [daemon] state_dir to a folder of your own")
    if facts.st_mode & 0o077:
        path.chmod(0o700)


def reason(error: OSError) -> str:
    """Its text for a person: ours as it is, the system's with the path and without the number."""
    if not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _who_runs(settings: Settings, lock: int) -> str:
    other = read_daemon_file(settings)
    if other:
        who = f"pid {other['pid']} at {other['url']}"
        return f"a daemon runs already ({who}); stop it by: dflash-supervise daemon stop"
    said = os.pread(lock, 32, 0)
    who = f"pid {said.decode()}" if said.isdigit() else "another process"
    end = f"kill {said.decode()}" if said.isdigit() else "ending its process"
    return (
        f"a daemon runs already ({who} holds {settings.lock_file}), and {settings.daemon_file} does not say its "
        f"address; wait a moment, or end it by: {end}"
    )


def _instance(settings: Settings) -> Instance:
    if settings.daemon_file.is_dir():
        raise state_files.BadFile(settings.daemon_file, "is a folder")
    owner, token = settings.state_dir / "owner", settings.token_file
    return Instance(
        owner=state_files.owner(owner) or _new(owner, f"sup-{secrets.token_hex(8)}"),
        token=state_files.token(token) or _new(token, secrets.token_hex(TOKEN_BYTES)),
    )


def _new(path: Path, value: str) -> str:
    """Write the file, 0600 from the first byte, and return what it holds."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    _write(beside, value + "\n")
    beside.replace(path)
    return value


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
