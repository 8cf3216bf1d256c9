"""Closing what a connection stands on, once, and in time."""

from __future__ import annotations

import threading

from dflash_supervise.link.closer import Closer
from dflash_supervise.link.errors import AgentSilent, Unreachable


def test_the_socket_is_closed_before_what_talks_over_it() -> None:
    closed: list[str] = []
    closer = Closer()
    closer.add(lambda: closed.append("socket"))
    closer.add(lambda: closed.append("channel"))
    closer.close()
    closer.close()
    assert closed == ["socket", "channel"]


def test_what_opens_after_the_end_is_closed_at_once() -> None:
    closed: list[str] = []
    closer = Closer()
    closer.close()
    closer.add(lambda: closed.append("late"))
    assert closed == ["late"]


def test_the_first_reason_stays_and_a_broken_close_stops_no_other() -> None:
    closed: list[str] = []

    def broken() -> None:
        raise OSError("already gone")

    closer = Closer()
    closer.add(broken)
    closer.add(lambda: closed.append("next"))
    first = Unreachable("first")
    closer.close(first)
    closer.close(AgentSilent("second"))
    assert closer.why is first and closed == ["next"]


def test_a_block_that_takes_too_long_is_cut_with_its_reason() -> None:
    closer, cut, late = Closer(), threading.Event(), AgentSilent("late")
    closer.add(cut.set)
    with closer.limit(0.01, late):
        assert cut.wait(30)
    assert closer.why is late


def test_a_block_in_time_cuts_nothing_and_later_limits_still_hold() -> None:
    early, other, cut = Closer(), Closer(), threading.Event()
    other.add(cut.set)
    with early.limit(0.05, AgentSilent("early")):
        pass
    with other.limit(0.1, AgentSilent("other")):
        assert cut.wait(30)
    assert not early.closed
