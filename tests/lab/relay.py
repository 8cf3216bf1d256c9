"""A TCP relay that can lose its network."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from dataclasses import dataclass, field

CHUNK_BYTES = 65536
BACKLOG = 128


@dataclass(eq=False)
class _End:
    """One of the two sockets of a relayed connection."""

    sock: socket.socket
    peer: _End | None = None
    pending: bytearray = field(default_factory=bytearray)  # accepted from the peer, not yet sent here
    read_closed: bool = False


class Relay:
    """Forwards connections on a loopback port of its own to another port.

    `dark()` stops forwarding and keeps every socket open: existing connections fall silent, new ones
    connect and hear nothing. (The kernel still acknowledges what is sent: this is a silent peer, not a
    missing route.) `cut()` resets existing connections. `restore()` ends the darkness; what was sent
    meanwhile is delivered, as by a network that comes back.
    """

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._lock = threading.Lock()
        self._done = threading.Condition(self._lock)
        self._wanted_dark = False
        self._is_dark = False
        self._cuts_wanted = 0
        self._cuts_done = 0
        self._stopping = False
        self._ends: set[_End] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"relay-{self.port}", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._ends) // 2

    def dark(self) -> None:
        self._want(dark=True)

    def restore(self) -> None:
        self._want(dark=False)

    def cut(self) -> None:
        """Reset every existing connection on both sides; new ones are served unless it is dark."""
        with self._lock:
            self._cuts_wanted += 1
            want = self._cuts_wanted
            self._poke()
            self._done.wait_for(lambda: self._cuts_done >= want or self._stopping)

    def close(self) -> None:
        with self._lock:
            self._stopping = True
            self._poke()
            self._done.notify_all()
        self._thread.join()

    def _want(self, *, dark: bool) -> None:
        with self._lock:
            self._wanted_dark = dark
            self._poke()
            self._done.wait_for(lambda: self._is_dark == dark or self._stopping)

    def _poke(self) -> None:
        self._wake_write.send(b"!")

    # Everything below runs in the relay's thread.

    def _run(self) -> None:
        while True:
            ready = self._selector.select()
            with self._lock:
                if self._stopping:
                    break
                self._obey()
                if not self._is_dark:
                    for key, events in ready:
                        self._serve(key, events)
        for end in list(self._ends):
            self._reset(end)
        self._selector.close()
        for sock in (self._listener, self._wake_read, self._wake_write):
            sock.close()

    def _obey(self) -> None:
        """Take over what the callers want, and tell them."""
        try:
            while self._wake_read.recv(CHUNK_BYTES):
                pass
        except BlockingIOError:
            pass
        if self._cuts_done < self._cuts_wanted:
            for end in list(self._ends):
                self._reset(end)
            self._cuts_done = self._cuts_wanted
        if self._is_dark != self._wanted_dark:
            self._is_dark = self._wanted_dark
            if self._is_dark:
                self._selector.unregister(self._listener)
            else:
                self._selector.register(self._listener, selectors.EVENT_READ)
            for end in self._ends:
                self._listen(end)
        self._done.notify_all()

    def _serve(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._listener:
            self._accept()
            return
        end = key.data
        if not isinstance(end, _End) or end not in self._ends:
            return
        try:
            if events & selectors.EVENT_WRITE:
                self._send(end)
            if events & selectors.EVENT_READ:
                self._receive(end)
        except OSError:
            self._reset(end)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except BlockingIOError:
            return
        try:
            server = socket.create_connection(self._target)
        except OSError:
            _close_hard(client)
            return
        pair = (_End(client), _End(server))
        pair[0].peer, pair[1].peer = pair[1], pair[0]
        for end in pair:
            end.sock.setblocking(False)
            end.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends.add(end)
            self._listen(end)

    def _receive(self, end: _End) -> None:
        peer = end.peer
        assert peer is not None
        data = end.sock.recv(CHUNK_BYTES)
        if data:
            peer.pending += data
        else:
            end.read_closed = True
        self._send(peer)
        self._listen(end)

    def _send(self, end: _End) -> None:
        peer = end.peer
        assert peer is not None
        try:
            while end.pending:
                del end.pending[: end.sock.send(end.pending)]
        except BlockingIOError:
            pass
        if peer.read_closed and not end.pending:
            if end.read_closed and not peer.pending:
                self._drop(end)
                return
            end.sock.shutdown(socket.SHUT_WR)
        self._listen(end)
        self._listen(peer)

    def _listen(self, end: _End) -> None:
        """Register an end for what it may do now: nothing in the dark, no reading while the peer is full."""
        if end not in self._ends:
            return
        peer = end.peer
        assert peer is not None
        events = 0
        if not self._is_dark:
            if not end.read_closed and len(peer.pending) < CHUNK_BYTES:
                events |= selectors.EVENT_READ
            if end.pending:
                events |= selectors.EVENT_WRITE
        known = self._selector.get_map().get(end.sock)
        if known is None and events:
            self._selector.register(end.sock, events, end)
        elif known is not None and not events:
            self._selector.unregister(end.sock)
        elif known is not None and known.events != events:
            self._selector.modify(end.sock, events, end)

    def _reset(self, end: _End) -> None:
        for each in (end, end.peer):
            if each is not None and each in self._ends:
                each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._drop(end)

    def _drop(self, end: _End) -> None:
        for each in (end, end.peer):
            if each is None or each not in self._ends:
                continue
            if self._selector.get_map().get(each.sock) is not None:
                self._selector.unregister(each.sock)
            self._ends.discard(each)
            each.sock.close()


def _close_hard(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
