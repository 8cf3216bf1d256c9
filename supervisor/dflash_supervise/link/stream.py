"""One byte stream to a shell command on a host: over SSH, or in a process of this machine.

Both behave alike for everything above: `send` may block and is woken by `close`; `receive` waits a limited
time; standard error is always drained, since an unread one stops the other (they share a window or fill a
pipe).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from dflash_supervise.link.closer import Closer
from dflash_supervise.link.errors import NoChannel, Unreachable

_CHUNK_BYTES = 65536
_KEPT_STDERR_BYTES = 2048
_EXIT_WAIT_S = 2.0
_SEND_CHECK_S = 0.5


class Stream(Protocol):
    """What a transport offers."""

    def send(self, data: bytes) -> None:
        """Raises OSError or EOFError when the stream is over."""
        ...

    def receive(self, wait_s: float) -> bytes | None:
        """Bytes; None when there were none in time; empty when the stream is over."""
        ...

    def exit_status(self) -> int | None:
        """Of the command, once the stream is over; None when nobody knows. Negative: a signal."""
        ...

    def release(self) -> None:
        """Give back what the stream holds; nobody sends or receives any more."""
        ...

    @property
    def stderr_tail(self) -> str: ...


class _Tail:
    """The last bytes of standard error."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data
        del self._kept[:-_KEPT_STDERR_BYTES]

    def text(self) -> str:
        text = self._kept.decode("utf-8", "replace")
        return "".join(c if c.isprintable() or c == "\n" else " " for c in text).strip()


class ProcessStream:
    """A shell command on this machine."""

    def __init__(self, command: str, closer: Closer, environment: Mapping[str, str] | None = None) -> None:
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=Path.home() if Path.home().is_dir() else "/",
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(f"/bin/sh does not start on this machine: {error.strerror}") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._input = self._process.stdin.fileno()
        self._outputs = {self._process.stdout.fileno(): True, self._process.stderr.fileno(): False}
        # A child of the agent may hold the other end open after its death: never wait for it alone.
        os.set_blocking(self._input, False)
        self._closer = closer
        self._tail = _Tail()
        closer.add(self._close)

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._closer.closed:
                raise OSError("the connection is over")
            if select.select([], [self._input], [], _SEND_CHECK_S)[1]:
                view = view[os.write(self._input, view[: select.PIPE_BUF]) :]

    def receive(self, wait_s: float) -> bytes | None:
        ready, _, _ = select.select(list(self._outputs), [], [], wait_s)
        got: bytes | None = None
        for descriptor in ready:
            data = os.read(descriptor, _CHUNK_BYTES)
            if self._outputs[descriptor]:
                got = data
            elif data:
                self._tail.add(data)
            else:
                del self._outputs[descriptor]
        return got

    def exit_status(self) -> int | None:
        try:
            return self._process.wait(_EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            return None

    def release(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    @property
    def stderr_tail(self) -> str:
        return self._tail.text()

    def _close(self) -> None:
        # The end of the process wakes whoever writes to it or reads from it.
        for signum in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(signum)
                self.exit_status()


class SshStream:
    """A shell command over one session channel of a paramiko transport."""

    def __init__(self, transport: Any, command: str, closer: Closer, timeout_s: float) -> None:
        import paramiko

        late = NoChannel("the server took the session and never answered the request to run a command")
        try:
            with closer.limit(timeout_s, late):
                self._channel = transport.open_session(timeout=timeout_s)
                self._channel.exec_command(command)
        except paramiko.ChannelException as error:
            raise NoChannel(
                f"the server opens no session ({error.text})",
                fix="raise MaxSessions in its sshd_config, or end other sessions of this connection",
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise closer.why or NoChannel(f"the server ran no command: {error or 'the connection ended'}") from error
        self._tail = _Tail()
        # Not settimeout: it would hold for sending too, and cut a line in two when the window is full.
        self._readable = threading.Event()
        self._channel.in_buffer.set_event(self._readable)
        closer.add(self._channel.close)

    def send(self, data: bytes) -> None:
        self._channel.sendall(data)

    def receive(self, wait_s: float) -> bytes | None:
        while self._channel.recv_stderr_ready():
            self._tail.add(self._channel.recv_stderr(_CHUNK_BYTES))
        if not self._readable.wait(wait_s):
            return None
        data: bytes = self._channel.recv(_CHUNK_BYTES)
        return data

    def exit_status(self) -> int | None:
        if not self._channel.status_event.wait(_EXIT_WAIT_S):
            return None
        status: int = self._channel.exit_status
        return None if status == -1 else status

    def release(self) -> None:
        return None

    @property
    def stderr_tail(self) -> str:
        while self._channel.recv_stderr_ready():
            self._tail.add(self._channel.recv_stderr(_CHUNK_BYTES))
        return self._tail.text()
