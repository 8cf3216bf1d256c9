"""The conversation with an agent: requests with deadlines out, answers and unsolicited lines in."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from dflash_supervise.link import errors
from dflash_supervise.link.closer import Closer
from dflash_supervise.link.lines import LineSplitter, encode, parse
from dflash_supervise.link.settings import LinkSettings
from dflash_supervise.link.stream import Stream

_POLL_S = 0.5
_SEND_LIMIT_S = 15.0  # a line waits this long for the other side to read; then the connection is dead

Answer = Callable[[dict[str, Any]], None]


class _Waiter:
    """Somebody in another thread who waits for one answer."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._answer: dict[str, Any] | None = None

    def give(self, answer: dict[str, Any]) -> None:
        self._answer = answer
        self._there.set()

    def wait(self, timeout_s: float) -> dict[str, Any] | None:
        self._there.wait(timeout_s)
        return self._answer


class AgentChannel:
    """One live connection to an agent. `run` belongs to one thread; `request` to all the others.

    No thread but `run`'s reads, so a request from inside the line callback would wait for itself: use
    `post` there.
    """

    def __init__(
        self,
        stream: Stream,
        splitter: LineSplitter,
        closer: Closer,
        settings: LinkSettings,
        on_line: Callable[[dict[str, Any]], None],
    ) -> None:
        self._stream = stream
        self._splitter = splitter
        self._closer = closer
        self._settings = settings
        self._on_line = on_line
        self._ids = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._reader: int | None = None
        self._over = False

    def request(self, op: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask and wait.

        Raises:
            RequestTimeout: no answer in time; the connection goes on.
            AgentRefusal: the agent answered with an error.
            LinkError: the connection ended meanwhile.
        """
        assert threading.get_ident() != self._reader, "a request from the reading thread would wait for itself"
        waiter = _Waiter()
        number = self.post(op, waiter.give)
        answer = waiter.wait(timeout_s)
        with self._lock:
            self._answers.pop(number, None)
        if answer is None:
            raise errors.RequestTimeout(f"the agent did not answer {op.get('op')!r} within {timeout_s:g} s")
        return answered(answer)

    def post(self, op: dict[str, Any], answer: Answer) -> int:
        """Ask without waiting; `answer` is called by the reading thread, or by the end of the connection.

        Raises:
            ValueError: the request is longer than a line may be.
            LinkError: the connection is over.
        """
        number = next(self._ids)
        line = encode({"id": number, **op})
        with self._lock:
            if self._over:
                raise self._why()
            self._answers[number] = answer
        try:
            self._send(line)
        except (OSError, EOFError, ValueError) as error:
            with self._lock:
                self._answers.pop(number, None)
            raise self._closer.why or errors.Unreachable(f"the connection is over: {error}") from error
        return number

    def run(self, waiting: list[bytes]) -> errors.LinkError:
        """Read until the connection is over, and say why. `waiting` came in together with the hello.

        An exception of the line callback ends it too, and is raised: the line was not taken, so it must
        come again.
        """
        self._reader = threading.get_ident()
        try:
            self._take(waiting)
            why = self._read()
            self._closer.close(why)
            return why
        finally:
            self._finish()

    def _read(self) -> errors.LinkError:
        heard_at = pinged_at = time.monotonic()
        while True:
            data = self._receive()
            now = time.monotonic()
            if data == b"" or self._closer.closed:
                return self._closer.why or self._ended()
            if data:
                # Bytes and not lines: a long line over a slow way is life too.
                heard_at = now
                self._take(self._splitter.feed(data))
            if now - pinged_at >= self._settings.ping_every_s:
                pinged_at = now
                self._ping()
            if now - heard_at > self._settings.silent_after_s:
                return errors.AgentSilent(f"nothing from the agent for {self._settings.silent_after_s:g} s")

    def _receive(self) -> bytes | None:
        try:
            return self._stream.receive(min(_POLL_S, self._settings.ping_every_s))
        except (OSError, EOFError, ValueError):
            return b""

    def _take(self, lines: list[bytes]) -> None:
        for line in lines:
            message = parse(line)
            if message is None:
                continue
            if "re" not in message:
                self._on_line(message)
                continue
            with self._lock:
                answer = self._answers.pop(message["re"], None)
            if answer is not None:
                answer(message)

    def _ping(self) -> None:
        # A sender at work proves as much as a ping, and this thread must not queue behind a stuck one.
        if not self._sending.acquire(blocking=False):
            return
        try:
            self._write(encode({"id": next(self._ids), "op": "ping"}))
        except (OSError, EOFError, ValueError):
            # The next read sees the end.
            return
        finally:
            self._sending.release()

    def _send(self, line: bytes) -> None:
        with self._sending:
            self._write(line)

    def _write(self, line: bytes) -> None:
        if self._over:
            raise OSError("the connection is over")
        stuck = errors.AgentSilent(f"the agent read nothing for {_SEND_LIMIT_S:g} s")
        with self._closer.limit(_SEND_LIMIT_S, stuck):
            self._stream.send(line)

    def _ended(self) -> errors.LinkError:
        status = self._stream.exit_status()
        how = "was lost" if status is None else f"was ended by the host (the agent's exit status is {status})"
        said = f"; it said: {self._stream.stderr_tail}" if self._stream.stderr_tail else ""
        return errors.Unreachable(f"the connection {how}{said}")

    def _why(self) -> errors.LinkError:
        return self._closer.why or errors.Unreachable("the connection is over")

    def _finish(self) -> None:
        """Close, tell everybody who still waits, and give the stream back."""
        self._closer.close()
        with self._lock:
            self._over = True
            answers, self._answers = self._answers, {}
        why = self._why()
        for answer in answers.values():
            answer({"ok": False, "link": why})
        with self._sending:
            self._stream.release()


def answered(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer's content, or its error as an exception.

    Raises:
        LinkError
    """
    lost = answer.get("link")
    if isinstance(lost, errors.LinkError):
        raise lost
    if answer.get("ok"):
        return {key: value for key, value in answer.items() if key not in ("re", "ok")}
    raise errors.agent_refusal(answer)
