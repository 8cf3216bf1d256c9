"""Binds the dashboard's port, and says who has it when somebody does."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path


class PortTaken(Exception):
    """Somebody listens there already. The text says who and what to do."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        PortTaken: with pid and command of the process that has the port, as far as we may see.
        ValueError: the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno in (98, 48):  # EADDRINUSE on Linux and macOS
            raise PortTaken(
                f"port {port} is taken by {taken_by(port)}; "
                f"choose another: dflash-supervise daemon run --port {port + 1}"
            ) from error
        raise ValueError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def taken_by(port: int) -> str:
    """ "pid 123 (python3)" of who listens on the port; only its user when the process is not ours to see."""
    listeners = _listeners(port)
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()) if listeners else ():
        if _sockets(pid) & set(listeners):
            return f"pid {pid} ({_comm(pid)})"
    uids = sorted(set(listeners.values()))
    return f"a process of uid {uids[0]}" if uids else "another process"


def _listeners(port: int) -> dict[str, int]:
    """Socket inode -> uid of everything that listens on the port (/proc/net/tcp, state 0A)."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                found[fields[9]] = int(fields[7])
    return found


def _sockets(pid: int) -> set[str]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return set()
    found = set()
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone since"
