"""Bytes that come to a process set or leave it over TCP: a trainer that waits for a transfer is not hung.

What its own processes tell each other is no news from outside: ranks that wait in a collective for ever still ask
their store once a second whether somebody gave up (seen with NCCL). Asked from the kernel by sock_diag
(sock_diag(7), what ``ss -ti`` uses); needs no root.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Dict, Iterable, NamedTuple, Optional, Set, Tuple

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST_DUMP = 0x301
TCP_ESTABLISHED = 1
INET_DIAG_INFO = 2  # attribute that holds struct tcp_info
DIAG_MSG_BYTES = 72  # struct inet_diag_msg; the inode is its last field
BYTES_ACKED_AT, BYTES_RECEIVED_AT = 120, 128  # in struct tcp_info (linux/tcp.h)
ANSWER_S = 0.5
MAPPED = b"\0" * 10 + b"\xff\xff"  # ::ffff:a.b.c.d is a.b.c.d

End = Tuple[bytes, int]  # address, port


class Connection(NamedTuple):
    """One established TCP socket as its owner sees it."""

    local: End
    remote: End
    moved_bytes: int


def moved_bytes(pids: Iterable[int], proc_root: str = "/proc") -> Optional[int]:
    """Bytes acknowledged and received so far, summed over these processes' established TCP sockets to others.

    0: they have none. None: it cannot be known (a process we may not look into, another network namespace, no
    sock_diag). Two looks are compared; the sum itself falls when a connection closes.
    """
    inodes: Set[int] = set()
    for pid in pids:
        try:
            if not _same_network(pid, proc_root):
                return None
            inodes |= _socket_inodes(pid, proc_root)
        except FileNotFoundError:
            continue  # ended meanwhile
        except OSError:
            return None
    if not inodes:
        return 0
    known: Dict[int, Connection] = {}
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            known.update(_connections(family))
    except (OSError, struct.error):
        return None
    mine = [known[inode] for inode in inodes & set(known)]
    pairs = {(one.local, one.remote) for one in mine}
    return sum(one.moved_bytes for one in mine if (one.remote, one.local) not in pairs)


def _same_network(pid: int, proc_root: str) -> bool:
    return os.stat(f"{proc_root}/{pid}/ns/net").st_ino == os.stat(f"{proc_root}/self/ns/net").st_ino


def _socket_inodes(pid: int, proc_root: str) -> Set[int]:
    found: Set[int] = set()
    for name in os.listdir(f"{proc_root}/{pid}/fd"):
        try:
            target = os.readlink(f"{proc_root}/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


def _connections(family: int) -> Dict[int, Connection]:
    """socket inode -> connection, of every established TCP socket of this network namespace."""
    request = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 1 << TCP_ESTABLISHED)
    header = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0)
    found: Dict[int, Connection] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as channel:
        channel.settimeout(ANSWER_S)
        channel.sendto(header + request, (0, 0))
        while True:
            data, at = channel.recv(1 << 18), 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == NLMSG_DONE:
                    return found
                if kind == NLMSG_ERROR:
                    raise OSError("sock_diag is not offered by this kernel")
                _read_socket(data[at + 16 : at + length], found)
                at += (length + 3) & ~3


def _read_socket(message: bytes, found: Dict[int, Connection]) -> None:
    (inode,) = struct.unpack_from("=I", message, DIAG_MSG_BYTES - 4)
    local_port, remote_port, local, remote = struct.unpack_from("!HH16s16s", message, 4)
    ends = ((_address(message[0], local), local_port), (_address(message[0], remote), remote_port))
    at = DIAG_MSG_BYTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == INET_DIAG_INFO and length >= 4 + BYTES_RECEIVED_AT + 8:
            acked, received = struct.unpack_from("=QQ", message, at + 4 + BYTES_ACKED_AT)
            found[inode] = Connection(*ends, acked + received)
        at += max(4, (length + 3) & ~3)


def _address(family: int, raw: bytes) -> bytes:
    if family == socket.AF_INET:
        return raw[:4]
    return raw[12:] if raw.startswith(MAPPED) else raw
