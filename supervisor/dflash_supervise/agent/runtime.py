"""The runtime folder of this host: locks, frozen contexts, pids; who this machine is, and its clock.

It is host-local and 0700, so what lies in it is true on this machine and for this user alone. Nothing here touches a
workspace.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Dict, Mapping, Optional

from dflash_supervise.agent.files import (
    UnsafeFolder,
    check_folder,
    make_folder,
    read_json,
    sync_folder,
    write_atomic,
    write_json,
)
from dflash_supervise.agent.proc import boot_id

__all__ = [
    "Lock",
    "Runtime",
    "UnsafeFolder",
    "boot_id",
    "boottime_s",
    "check_folder",
    "failpoint",
    "gpu_lock_name",
    "lock_held",
    "lock_owner",
    "machine_identity",
    "make_folder",
    "read_json",
    "sync_folder",
    "take_lock",
    "wall_clock",
    "workspace_lock_name",
    "write_atomic",
    "write_json",
]

LOCK_RETRY_S = 0.02


def boottime_s() -> float:
    """Seconds since boot, suspended time included (``CLOCK_BOOTTIME``)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_clock(at: Optional[float] = None) -> str:
    """RFC 3339 in UTC with milliseconds; now when no time is given."""
    at = time.time() if at is None else at
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


# ---------------------------------------------------------------- folders


def runtime_root(environ: Mapping[str, str]) -> str:
    """Where the runtime folder lies.

    The session's own variable wins. Without it /run/user/UID counts where it exists, so that a process started from
    cron or from an old tmux server takes the same locks as one started over SSH.
    """
    base = environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isabs(base):
        return os.path.join(base, "dflash")
    uid = os.geteuid()
    session = f"/run/user/{uid}"
    try:
        check_folder(session, private=True)
        return os.path.join(session, "dflash")
    except (OSError, UnsafeFolder):
        return f"/tmp/dflash-{uid}"


@dataclass(frozen=True)
class Runtime:
    """The runtime folder R, checked. Every path in it is asked for here."""

    root: str
    proc_root: str = "/proc"

    @classmethod
    def open(
        cls, environ: Optional[Mapping[str, str]] = None, *, root: Optional[str] = None, proc_root: str = "/proc"
    ) -> Runtime:
        """Create or check R, R/runs and R/locks.

        Raises:
            UnsafeFolder: a folder there is not ours alone.
            OSError: it cannot be made.
        """
        root = root or runtime_root(os.environ if environ is None else environ)
        os.makedirs(os.path.dirname(root), exist_ok=True)
        for folder in (root, os.path.join(root, "runs"), os.path.join(root, "locks")):
            make_folder(folder)
        return cls(root, proc_root)

    def run(self, run_id: str) -> str:
        """R/runs/<run_id>, created when absent."""
        assert run_id and "/" not in run_id and not run_id.startswith("."), run_id
        path = os.path.join(self.root, "runs", run_id)
        make_folder(path)
        return path

    def in_run(self, run_id: str, name: str) -> str:
        return os.path.join(self.root, "runs", run_id, name)

    def context_path(self, run_id: str) -> str:
        return self.in_run(run_id, "context.json")

    def options_path(self, run_id: str) -> str:
        return self.in_run(run_id, "agent-options.json")

    def agent_lock(self, run_id: str) -> str:
        return self.in_run(run_id, "agent.lock")

    def keeper_lock(self, run_id: str, number: int) -> str:
        return self.in_run(run_id, f"keeper-{number}.lock")

    def exit_copy(self, run_id: str, number: int) -> str:
        return self.in_run(run_id, f"exit-{number}.json")

    def set_memory(self, run_id: str, number: int) -> str:
        return self.in_run(run_id, f"set-{number}.json")

    def known_attempt(self, run_id: str) -> str:
        return self.in_run(run_id, "attempt.json")

    def spare_records(self, run_id: str) -> str:
        return self.in_run(run_id, "records")

    def lock_path(self, name: str) -> str:
        return os.path.join(self.root, "locks", name)

    @property
    def baselines_path(self) -> str:
        return os.path.join(self.root, "baselines.json")

    def options(self, run_id: str, environ: Optional[Mapping[str, str]] = None) -> Dict[str, Any]:
        """Test options: the run's file over ``DFLASH_AGENT_OPTIONS``; {} when there are none or they do not parse."""
        options: Dict[str, Any] = {}
        try:
            given = json.loads((os.environ if environ is None else environ).get("DFLASH_AGENT_OPTIONS") or "{}")
        except ValueError:
            given = {}
        if isinstance(given, dict):
            options.update(given)
        options.update(read_json(self.options_path(run_id)) or {})
        return options

    def keeper_holds(self, run_id: str, number: int) -> Optional[bool]:
        """Whether a keeper of this attempt lives; None: cannot be told."""
        return lock_held(self.keeper_lock(run_id, number))

    def agent_holds(self, run_id: str) -> Optional[bool]:
        """Whether an agent of this run lives; None: cannot be told."""
        return lock_held(self.agent_lock(run_id))


# ---------------------------------------------------------------- locks


def workspace_lock_name(workspace: str) -> str:
    digest = sha1(os.path.realpath(workspace).encode("utf-8", "surrogateescape"))  # noqa: S324 - a name, not a secret
    return f"ws-{digest.hexdigest()}.lock"


def gpu_lock_name(uuid: str) -> str:
    return "gpu-{}.lock".format("".join(c if c.isalnum() or c in "-_" else "_" for c in uuid))


@dataclass(frozen=True)
class Lock:
    """A held flock. It ends with the process, or by ``release``; no child inherits it."""

    path: str
    fd: int

    def release(self) -> None:
        os.close(self.fd)

    def in_place(self) -> bool:
        """False when the file at the path is not the one we hold (deleted, replaced): it protects nothing then."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.fd))
        except OSError:
            return False


def take_lock(path: str, owner: Mapping[str, Any], *, wait_s: float = 0.0) -> Optional[Lock]:
    """The lock at ``path``, or None while another process holds it.

    A look (``lock_held``) holds a lock for microseconds; a ``wait_s`` of 0.2 keeps that from passing for an owner.

    Raises:
        OSError: the file cannot be opened.
    """
    until = time.monotonic() + wait_s
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        lock = Lock(path, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.release()
            if time.monotonic() >= until:
                return None
            time.sleep(LOCK_RETRY_S)
            continue
        if lock.in_place():  # else it was deleted between open and flock: take the new one
            with suppress(OSError):  # the flock is the lock; a full disk only hides from people whose it is
                os.ftruncate(fd, 0)
                os.pwrite(fd, json.dumps(dict(owner)).encode(), 0)
            return lock
        lock.release()


def lock_held(path: str) -> Optional[bool]:
    """Whether some process holds the lock; None when that cannot be told.

    Looks with a shared lock, so that two who look do not take each other for an owner.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)


def lock_owner(path: str) -> Optional[Dict[str, Any]]:
    """What the last owner wrote into the lock: {"run", "attempt", "pid", "start_ticks"} for a keeper's."""
    return read_json(path)


# ---------------------------------------------------------------- who this machine is


def machine_identity(proc_root: str = "/proc") -> Dict[str, Any]:
    """What tells this machine, boot, container and pid namespace from every other (``pid1_start`` in clock ticks)."""
    try:
        pid_ns: str = os.readlink(proc_root + "/self/ns/pid")
    except OSError:
        pid_ns = ""
    first = _line(proc_root + "/1/stat").rpartition(")")[2].split()
    return {
        "machine_id": _line("/etc/machine-id") or _line("/var/lib/dbus/machine-id"),
        "boot_id": boot_id(proc_root),
        "pid_ns": pid_ns,
        "pid1_start": int(first[19]) if len(first) > 19 else None,
        "hostname": os.uname().nodename,
    }


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


# ---------------------------------------------------------------- failpoints


def failpoint(options: Mapping[str, Any], name: str, attempt: int) -> None:
    """In tests: end this process as an unlucky ``kill -9`` would, at the named instruction.

    ``options["failpoint"]`` is ``name`` or ``name@attempt``; anything else does nothing.
    """
    if options.get("failpoint") in (name, f"{name}@{attempt}"):
        os.kill(os.getpid(), signal.SIGKILL)
