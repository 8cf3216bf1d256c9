"""A ProxyCommand on one end of a socket pair.

paramiko's own keeps a core busy when the command dies and leaves a zombie; a socket pair sees the end at
once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile

from dflash_supervise.link.closer import Closer
from dflash_supervise.link.errors import Unreachable

_END_S = 2.0
_SAID_BYTES = 1000


class ProxySocket(socket.socket):
    """Our end of the pair, with what the command wrote to standard error."""

    def __init__(self, command: str, closer: Closer) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours.family, ours.type, fileno=ours.detach())
        # A file and not a pipe: nobody reads while the command runs. Closed by _end.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                # As OpenSSH runs it: the shell is replaced by the command.
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self.close()
            raise Unreachable(f"the proxy command does not start: {error.strerror}") from error
        finally:
            theirs.close()
        closer.add(self._end)

    @property
    def said(self) -> str:
        """The end of its standard error, while it is still open."""
        if self._errors.closed:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _SAID_BYTES))
        return self._errors.read().decode("utf-8", "replace").strip()

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        self.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_END_S)
        self._errors.close()
