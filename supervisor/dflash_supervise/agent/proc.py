"""Reading /proc: one process at a time, value or None, never a guess. And the one place that sends signals."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from dflash_supervise.core.facts import ProcessFact

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ENVIRON_MAX_BYTES = 1 << 20
PF_KTHREAD = 0x00200000  # include/linux/sched.h

Key = Tuple[int, int]  # (pid, start_ticks): a name that is never given twice in one boot


@dataclass(frozen=True)
class Stat:
    """The part of /proc/PID/stat that we use (proc(5); ``start_ticks`` is field 22, clock ticks since boot)."""

    pid: int
    start_ticks: int
    ppid: int
    pgid: int
    sid: int
    tty: int  # 0: no controlling terminal
    kernel: bool  # a kernel thread (PF_KTHREAD)
    state: str
    comm: str
    cpu_s: float
    threads: int
    rss_bytes: int

    @property
    def key(self) -> Key:
        return self.pid, self.start_ticks

    @property
    def alive(self) -> bool:
        """A zombie is dead: it holds no memory and runs no code."""
        return self.state not in ("Z", "X")


def read_bytes(path: str, limit: int = 65536) -> Optional[bytes]:
    """The file's first bytes; None when it cannot be read (gone, not ours)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, limit)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_stat(pid: int, proc_root: str = "/proc") -> Optional[Stat]:
    """None: there is no such process."""
    data = read_bytes(f"{proc_root}/{pid}/stat", 4096)
    if not data:
        return None
    comm_end = data.rfind(b")")  # a name may hold spaces and brackets
    fields = data[comm_end + 2 :].split()
    if comm_end < 0 or len(fields) < 22:
        return None
    return Stat(
        pid=pid,
        start_ticks=int(fields[19]),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        tty=int(fields[4]),
        kernel=bool(int(fields[6]) & PF_KTHREAD),
        state=fields[0].decode("ascii", "replace"),
        comm=data[data.find(b"(") + 1 : comm_end].decode("utf-8", "replace"),
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_A_SECOND,
        threads=int(fields[17]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def start_ticks(pid: int, proc_root: str = "/proc") -> Optional[int]:
    stat = read_stat(pid, proc_root)
    return None if stat is None else stat.start_ticks


def is_alive(pid: int, start: int, proc_root: str = "/proc") -> bool:
    """Whether this very process still runs; a zombie and a new owner of the number do not count."""
    stat = read_stat(pid, proc_root)
    return stat is not None and stat.start_ticks == start and stat.alive


def read_environ(pid: int, proc_root: str = "/proc") -> Optional[Dict[str, str]]:
    """The variables that carry our marks; None when the environment may not be read."""
    data = read_bytes(f"{proc_root}/{pid}/environ", ENVIRON_MAX_BYTES)
    if data is None:
        return None
    found: Dict[str, str] = {}
    if b"DFLASH_" in data:
        for entry in data.split(b"\0"):
            name, equals, value = entry.partition(b"=")
            if equals and name in (b"DFLASH_RUN", b"DFLASH_ATTEMPT_DIR"):
                found.setdefault(name.decode(), value.decode("utf-8", "surrogateescape"))
    return found


def parse_token(token: Optional[str]) -> Optional[Tuple[str, int]]:
    """(run_id, attempt) of ``DFLASH_RUN=<run_id>:<attempt>``; None for anything else."""
    run_id, colon, attempt = (token or "").rpartition(":")
    if not run_id or not colon or not (attempt.isascii() and attempt.isdigit()):
        return None
    return run_id, int(attempt)


def token_of(pid: int, proc_root: str = "/proc") -> Optional[Tuple[str, int]]:
    """The attempt whose token this process carries; None: none, or its environment may not be read."""
    return parse_token((read_environ(pid, proc_root) or {}).get("DFLASH_RUN"))


def fact(stat: Stat, via: str, proc_root: str = "/proc", *, details: bool = False) -> ProcessFact:
    """``details`` reads what needs more files: what it waits for, who traces it, its I/O."""
    more: Dict[str, Any] = _details(stat, proc_root) if details else {}
    return ProcessFact(
        pid=stat.pid,
        start_ticks=stat.start_ticks,
        ppid=stat.ppid,
        pgid=stat.pgid,
        sid=stat.sid,
        state=stat.state,
        comm=stat.comm,
        cpu_s=stat.cpu_s,
        threads=stat.threads,
        rss_bytes=stat.rss_bytes,
        via=via,
        **more,
    )


def _details(stat: Stat, proc_root: str) -> Dict[str, Any]:
    base = f"{proc_root}/{stat.pid}"
    found: Dict[str, Any] = {}
    if stat.state in ("D", "S"):
        wchan = (read_bytes(base + "/wchan", 64) or b"").decode("ascii", "replace").strip()
        found["wchan"] = wchan if wchan not in ("", "0") else None  # "0": the kernel does not tell us
    tracer = field(read_bytes(base + "/status", 4096), b"TracerPid:")
    found["tracer_pid"] = None if tracer is None else int(tracer)
    io = read_bytes(base + "/io", 1024)  # what reached storage: heartbeats over pipes do not count as growth
    for name, key in (("read_bytes", b"read_bytes:"), ("write_bytes", b"write_bytes:")):
        value = field(io, key)
        found[name] = None if value is None else int(value)
    return found


def field(data: Optional[bytes], key: bytes) -> Optional[str]:
    """The value behind ``key`` at the beginning of a line of a /proc file."""
    for line in (data or b"").splitlines():
        if line.startswith(key):
            return line[len(key) :].decode("ascii", "replace").strip()
    return None


def uid_of(pid: int, proc_root: str = "/proc") -> Optional[int]:
    try:
        return os.stat(f"{proc_root}/{pid}").st_uid
    except OSError:
        return None


def catches(pid: int, number: int, proc_root: str = "/proc") -> bool:
    """Whether the process has a handler for this signal (SigCgt): without one a diagnostic signal would end it."""
    mask = field(read_bytes(f"{proc_root}/{pid}/status", 8192), b"SigCgt:")
    return mask is not None and bool(int(mask, 16) >> (number - 1) & 1)


def signal_process(pid: int, start: int, number: int, proc_root: str = "/proc") -> bool:
    """Send a signal to this very process, or to nobody.

    The pidfd is opened first and the start time read after it, so a number that changed hands in between is not hit.
    Returns whether the signal was sent.
    """
    if pid <= 1 or pid == os.getpid():
        return False
    opener, sender = getattr(os, "pidfd_open", None), getattr(signal, "pidfd_send_signal", None)  # Python 3.9
    fd: Optional[int] = None
    try:
        if opener is not None and sender is not None:
            try:
                fd = opener(pid)
            except OSError as error:
                if isinstance(error, ProcessLookupError):
                    return False  # any other error: a kernel or sandbox without pidfds
        if not is_alive(pid, start, proc_root):
            return False
        if fd is not None and sender is not None:
            sender(fd, number)
        else:
            os.kill(pid, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if fd is not None:
            os.close(fd)


def boot_id(proc_root: str = "/proc") -> str:
    return (read_bytes(f"{proc_root}/sys/kernel/random/boot_id", 64) or b"").decode("ascii", "replace").strip()
