"""One host's link: a thread that connects, starts the agent, reads its lines, and comes back when cut."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dflash_supervise.config.target import HostTarget
from dflash_supervise.link import errors
from dflash_supervise.link.boot import Hello, command, start_agent
from dflash_supervise.link.channel import AgentChannel, answered
from dflash_supervise.link.closer import Closer
from dflash_supervise.link.lines import LineSplitter
from dflash_supervise.link.settings import LinkSettings
from dflash_supervise.link.stream import ProcessStream, SshStream, Stream

if TYPE_CHECKING:
    import libtmux

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 30.0
_STEADY_S = 15.0  # a connection that lived so long was a success: the next wait starts small again
_JOIN_S = 10.0

Status = Literal["connecting", "ready", "unreachable"]
Sink = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Follow:
    """A run to follow, and from where: both None is from the beginning.

    cursor: {"epoch", "seq"} of the last record that is stored.
    log: {"attempt", "offset"} of the next log byte wanted.
    """

    run_id: str
    workspace: str
    cursor: dict[str, Any] | None = None
    log: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LinkState:
    """What is known about the link now.

    status: `connecting` until the first answer either way, and for the first try after a cut.
    since_at: unix time of the last change of status.
    error: why it is not ready; of the last try.
    hello: the agent's first line while ready, with `boot`: {"executable", "pushed", "notes"}.
    """

    status: Status
    since_at: float
    error: errors.LinkError | None = None
    hello: dict[str, Any] | None = None

    def as_line(self) -> dict[str, Any]:
        """The state as an unsolicited line for the sink."""
        error = None if self.error is None else self.error.as_dict()
        return {"t": "link", "status": self.status, "since_at": self.since_at, "error": error, "hello": self.hello}


class HostLink:
    """The link to one host.

    `sink(host_key, line)` gets every unsolicited line in order and every change of state, in the link's
    thread. It must not wait for this link there. When it raises, the connection is dropped and made again:
    what was not taken comes again from the cursors.

    `cursors()` names the runs to follow; it is asked after every connect.
    """

    def __init__(
        self,
        target: HostTarget,
        sink: Sink,
        settings: LinkSettings,
        *,
        cursors: Callable[[], Sequence[Follow]] = tuple,
    ) -> None:
        self.target = target
        self._sink = sink
        self._settings = settings
        self._cursors = cursors
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._changed = threading.Condition()
        self._state = LinkState("connecting", time.time())
        self._channel: AgentChannel | None = None
        self._closer = Closer()
        self._failed_tries = 0
        self._thread = threading.Thread(target=self._run, name=f"dflash-link-{target.key}", daemon=True)

    @property
    def state(self) -> LinkState:
        return self._state

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the connection and the thread. Nothing on the host but the stream process ends."""
        self._stop.set()
        self._wake.set()
        self._closer.close(errors.LinkClosed("this side closed the link"))
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def retry(self) -> None:
        """Try now instead of after the wait, for example when a person has accepted the host's key."""
        self._wake.set()

    def wait_ready(self, timeout_s: float) -> LinkState:
        """Wait until the link is ready, or until the try under way (or one that begins now) has failed.

        Raises:
            LinkError: why the host is not there.
        """
        with self._changed:
            failed = self._failed_tries
            self._wake.set()
            self._changed.wait_for(lambda: self._state.hello is not None or self._failed_tries > failed, timeout_s)
            state = self._state
        if state.hello is None:
            raise state.error or errors.Unreachable(f"{self.target.key} did not answer within {timeout_s:g} s")
        return state

    def request(self, op: dict[str, Any], timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, Any]:
        """Ask the agent, wait for its answer, return the answer's fields.

        Raises:
            LinkError: the link is down or went down (its code), no answer in time (`request_timeout`), or the
                agent's own error (`AgentRefusal`).
            ValueError: the request is longer than 256 KiB.
        """
        return self._ready_channel().request(op, timeout_s)

    def follow(
        self,
        run_id: str,
        workspace: str,
        cursor: dict[str, Any] | None = None,
        log: dict[str, Any] | None = None,
    ) -> None:
        """Begin to follow a run now if the link is ready; after a reconnect `cursors()` decides.

        May be called from the sink. A refusal comes to the sink as {"t": "follow_refused", "run", "error"}.
        """
        channel = self._channel
        if channel is not None:
            try:
                self._post_follow(channel, Follow(run_id, workspace, cursor, log))
            except errors.LinkError:
                # It was just cut: the next connect asks cursors() for this run too.
                return

    def tmux(self) -> libtmux.Server:
        """libtmux's server object for our tmux socket on the host; every call is a request on this link.

        Raises:
            LinkError: the link is down.
        """
        from dflash_supervise.link.remote_tmux import remote_server

        self._ready_channel()
        hello = self._state.hello
        assert hello is not None
        return remote_server(self.target.key, int(hello["uid"]), self.request)

    def _ready_channel(self) -> AgentChannel:
        channel, state = self._channel, self._state
        if channel is None:
            raise state.error or errors.Unreachable(f"{self.target.key} is not connected yet")
        return channel

    # Everything below runs in the link's thread.

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self._wake.clear()
            began = time.monotonic()
            error = self._session()
            if self._stop.is_set():
                return
            was_ready = self._state.status == "ready"
            steady = was_ready and time.monotonic() - began > _STEADY_S
            failures = 1 if steady else failures + 1
            try:
                self._set_state(LinkState("connecting" if was_ready else "unreachable", time.time(), error))
            except Exception:
                log.exception("the sink took no change of state host=%s", self.target.key)
            self._wake.wait(self._pause_s(failures, error))

    def _pause_s(self, failures: int, error: errors.LinkError) -> float:
        settings = self._settings
        if error.needs_person:
            return settings.retry_person_s
        wait_s = min(settings.retry_most_s, settings.retry_first_s * 2.0 ** min(failures - 1, 16))
        # Jitter, for after an outage every host comes back at once.
        return wait_s * random.uniform(0.5, 1.0)

    def _session(self) -> errors.LinkError:
        """One connection from its first byte to its end."""
        self._closer = closer = Closer()
        try:
            if self._stop.is_set():
                return errors.LinkClosed("this side closed the link")
            splitter = LineSplitter()
            stream = self._open(closer)
            hello, waiting = start_agent(stream, splitter, self.target.workspace, self._settings)
            channel = AgentChannel(stream, splitter, closer, self._settings, self._on_line)
            self._begin(channel, hello)
            return channel.run(waiting)
        except errors.LinkError as error:
            return closer.why or error
        except Exception as error:
            if closer.why is not None and isinstance(error, OSError | EOFError):
                # Closed under its feet, on purpose.
                return closer.why
            log.exception("the link failed by a fault of ours host=%s", self.target.key)
            return errors.InternalError(f"the link to {self.target.key} failed by a fault of ours; the log tells more")
        finally:
            self._channel = None
            closer.close()

    def _open(self, closer: Closer) -> Stream:
        shell = command(self.target.workspace)
        if self.target.local:
            return ProcessStream(shell, closer)
        from dflash_supervise.link.connect import connect

        transport = connect(self.target, self._settings, closer)
        return SshStream(transport, shell, closer, self._settings.connect_timeout_s)

    def _begin(self, channel: AgentChannel, hello: Hello) -> None:
        boot = {"executable": hello.executable, "pushed": hello.pushed, "notes": list(hello.notes)}
        self._channel = channel
        self._set_state(LinkState("ready", time.time(), hello={**hello.said, "boot": boot}))
        for follow in self._cursors():
            self._post_follow(channel, follow)

    def _post_follow(self, channel: AgentChannel, follow: Follow) -> None:
        op = {
            "op": "follow",
            "workspace": follow.workspace,
            "run_id": follow.run_id,
            "cursor": follow.cursor,
            "log": follow.log,
        }

        def refused(answer: dict[str, Any]) -> None:
            try:
                answered(answer)
            except errors.AgentRefusal as error:
                self._on_line({"t": "follow_refused", "run": follow.run_id, "error": error.as_dict()})
            except errors.LinkError:
                # The link's own change of state tells it.
                return

        channel.post(op, refused)

    def _on_line(self, line: dict[str, Any]) -> None:
        self._sink(self.target.key, line)

    def _set_state(self, state: LinkState) -> None:
        with self._changed:
            before, self._state = self._state, state
            if state.hello is None:
                self._failed_tries += 1
            self._changed.notify_all()
        same_error = (before.error and before.error.as_dict()) == (state.error and state.error.as_dict())
        if before.status != state.status or not same_error:
            self._on_line(state.as_line())
