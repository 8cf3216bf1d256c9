"""The outbox reaches each channel in order, however often a receiver fails, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dflash_supervise.alerts.result import Again, Never, Off, Result, Sent
from dflash_supervise.alerts.worker import AlertWorker
from dflash_supervise.config import ConfigError
from dflash_supervise.store import Store
from tests.unit.store.writing import RUN, Clock, Writer, open_store

Doc = dict[str, Any]


@dataclass
class Channel:
    """Answers in the order given, then ``Sent``; keeps the keys of what arrived."""

    name: str = "slack"
    answers: list[Result | Exception] = field(default_factory=list)
    arrived: list[str] = field(default_factory=list)
    tried: int = 0

    def send(self, entry: Doc) -> Result:
        self.tried += 1
        answer = self.answers.pop(0) if self.answers else Sent()
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Sent):
            self.arrived.append(entry["key"].removeprefix(RUN + "/"))
        return answer


def worker(store: Store, *channels: Channel) -> AlertWorker:
    made = AlertWorker(store, channels, interval_s=1.0, retry_max_s=60.0)
    for channel in channels:
        store.register_channel(channel.name)
    return made


def crashes(store: Store, count: int) -> list[str]:
    write = Writer()
    store.apply(RUN, [write.incident("crash", "segfault", attempt=n) for n in range(1, count + 1)])
    return [f"incident/{n}-segfault/warn" for n in range(1, count + 1)]


def test_messages_arrive_once_and_in_order(tmp_path: Path) -> None:
    store, channel = open_store(tmp_path), Channel()
    alerts = worker(store, channel)
    keys = crashes(store, 3)
    assert [alerts.step(channel) for _ in range(5)] == [True, True, True, False, False]
    assert channel.arrived == keys


def test_a_receiver_that_is_down_delays_and_loses_none(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    channel = Channel(answers=[Again("down") for _ in range(12)])
    alerts = worker(store, channel)
    keys = crashes(store, 3)
    waits = []
    while channel.arrived != keys:
        began = clock.now
        while not alerts.step(channel):
            clock.now += 0.5
        waits.append(clock.now - began)
    assert waits[1:8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0], "each wait doubles, up to the limit"
    assert channel.tried == 12 + 3


def test_the_receiver_s_own_wait_is_kept(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    channel = Channel(answers=[Again("slow down", 30.0)])
    alerts = worker(store, channel)
    crashes(store, 1)
    alerts.step(channel)
    clock.now += 29.0
    assert not alerts.step(channel)
    clock.now += 1.0
    assert alerts.step(channel) and channel.arrived


def test_a_message_refused_for_good_does_not_hold_up_the_next(tmp_path: Path) -> None:
    store, channel = open_store(tmp_path), Channel(answers=[Never("invalid_payload")])
    alerts = worker(store, channel)
    keys = crashes(store, 2)
    assert alerts.step(channel) and alerts.step(channel)
    assert channel.arrived == keys[1:]
    assert store.channels()[0]["last_error"] == "invalid_payload"


def test_a_channel_that_is_gone_is_off_with_its_reason_and_the_other_goes_on(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    gone, good = Channel(answers=[Off("404 no_service")]), Channel("webhook")
    alerts = worker(store, gone, good)
    keys = crashes(store, 2)
    assert alerts.step(gone) and not alerts.step(gone)
    assert alerts.step(good) and alerts.step(good)
    assert good.arrived == keys and gone.tried == 1
    states = {one["channel"]: one for one in store.channels()}
    assert states["slack"]["off_reason"] == "404 no_service" and states["slack"]["waiting"] == 2
    assert states["webhook"]["waiting"] == 0
    again = worker(store, gone)
    assert again.step(gone) and again.step(gone) and gone.arrived == keys, "a restart of the daemon tries it again"


def test_a_secret_that_cannot_be_read_switches_its_channel_off(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    channel = Channel(answers=[ConfigError("cannot read it", where="c.toml", key="slack.webhook")])
    alerts = worker(store, channel)
    crashes(store, 1)
    assert alerts.step(channel)
    assert "slack.webhook" in store.channels()[0]["off_reason"]


def test_a_new_channel_does_not_hear_the_history(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    crashes(store, 3)
    channel = Channel()
    alerts = worker(store, channel)
    assert not alerts.step(channel)
    store.apply(RUN, [Writer(epoch="000002-bbbb").incident("crash", "abort", attempt=9)])
    assert alerts.step(channel) and channel.arrived == ["incident/9-abort/warn"]


def test_what_was_sent_and_not_marked_is_sent_again_under_its_key(tmp_path: Path) -> None:
    store, channel = open_store(tmp_path), Channel()
    worker(store, channel)
    [key] = crashes(store, 1)
    entry = store.due("slack")
    assert entry is not None
    channel.send(entry)  # and the daemon is killed here
    assert worker(store, channel).step(channel)
    assert channel.arrived == [key, key]
