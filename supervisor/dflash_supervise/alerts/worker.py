"""Carries the outbox to the channels, in order, until each message has arrived."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dflash_supervise.alerts.result import Again, Channel, Never, Off, Result, Sent
from dflash_supervise.config import ConfigError

Doc = dict[str, Any]

log = logging.getLogger(__name__)

LOOK_S = 0.2
FIRST_RETRY_S = 1.0


class Outbox(Protocol):
    """The store's side of it. What is due stays due until one of the last three was called."""

    def register_channel(self, channel: str) -> None: ...

    def due(self, channel: str) -> Doc | None: ...

    def delivered(self, message: int, channel: str, error: str | None = None) -> None: ...

    def failed(self, message: int, channel: str, *, in_s: float, error: str) -> None: ...

    def switch_off(self, channel: str, reason: str) -> None: ...


class AlertWorker:
    """One thread a channel: a receiver that hangs holds up nobody else."""

    def __init__(
        self,
        outbox: Outbox,
        channels: Sequence[Channel],
        *,
        interval_s: float,
        retry_max_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox = outbox
        self._channels = tuple(channels)
        self._interval_s = interval_s
        self._retry_max_s = retry_max_s
        self._monotonic = monotonic
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(channel,), name=f"alerts-{channel.name}", daemon=True)
            for channel in self._channels
        ]

    def start(self) -> None:
        for channel in self._channels:
            self._outbox.register_channel(channel.name)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End after the message that is under way; what is left waits in the store."""
        self._closing.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=5)

    def _run(self, channel: Channel) -> None:
        while not self._closing.is_set():
            try:
                sent = self.step(channel)
            except Exception:
                # A notifier's failure never touches supervision: it is shown, and tried again.
                log.exception("the alert channel failed by a fault of ours channel=%s", channel.name)
                sent = True
            self._closing.wait(self._interval_s if sent else LOOK_S)

    def step(self, channel: Channel) -> bool:
        """Try the message that is due, if there is one; whether something was sent."""
        entry = self._outbox.due(channel.name)
        if entry is None:
            return False
        result = self._send(channel, entry)
        match result:
            case Sent():
                self._outbox.delivered(entry["id"], channel.name)
            case Again(reason, after_s):
                wait_s = after_s if after_s is not None else self._back_off_s(entry["tries"])
                log.warning("a message waits channel=%s in_s=%.0f: %s", channel.name, wait_s, reason)
                self._outbox.failed(entry["id"], channel.name, in_s=wait_s, error=reason)
            case Never(reason):
                log.error("a message was refused channel=%s key=%s: %s", channel.name, entry["key"], reason)
                self._outbox.delivered(entry["id"], channel.name, error=reason)
            case Off(reason):
                log.error("the channel is off until the daemon restarts channel=%s: %s", channel.name, reason)
                self._outbox.switch_off(channel.name, reason)
        return True

    def _send(self, channel: Channel, entry: Doc) -> Result:
        try:
            return channel.send(entry)
        except ConfigError as error:
            return Off(str(error))  # the secret cannot be read

    def _back_off_s(self, tries: int) -> float:
        return min(self._retry_max_s, FIRST_RETRY_S * 2.0 ** min(tries, 16))
