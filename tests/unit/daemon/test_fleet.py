"""Silence of hosts and agents, judged without acting on any run."""

from __future__ import annotations

import pytest

from dflash_supervise.core.fleet import HostView, Limits, RunView, judge

LIMITS = Limits()
QUIET = RunView("r", 40.0)


def whats(host: HostView) -> list[str]:
    return [action.what for action in judge(host, LIMITS)]


@pytest.mark.parametrize(
    ("status", "since_s", "told", "runs", "want"),
    [
        ("unreachable", 119.0, False, (QUIET,), []),
        ("unreachable", 120.0, False, (QUIET,), ["tell_unreachable"]),
        ("unreachable", 9999.0, True, (QUIET,), []),
        ("unreachable", 9999.0, False, (), []),  # nobody waits for this host
        ("connecting", 9999.0, False, (QUIET,), []),  # not known yet, and unknown accuses nobody
        ("ready", 5.0, True, (), ["tell_reachable"]),
        ("ready", 5.0, False, (), []),
    ],
)
def test_a_host_is_told_after_its_hold_time_and_once(
    status: str, since_s: float, told: bool, runs: tuple[RunView, ...], want: list[str]
) -> None:
    assert whats(HostView("h", status, since_s, told, runs)) == want


@pytest.mark.parametrize(
    ("run", "want"),
    [
        (RunView("r", 10.0), []),
        (RunView("r", 40.0), ["mark_silent", "ensure_agent"]),
        (RunView("r", None), ["mark_silent", "ensure_agent"]),
        (RunView("r", 60.0, silent_for_s=20.0, ensured_ago_s=19.0), []),
        (RunView("r", 60.0, silent_for_s=20.0, ensured_ago_s=20.0), ["ensure_agent"]),
        (RunView("r", 400.0, silent_for_s=300.0, ensured_ago_s=1.0), ["tell_silent"]),
        (RunView("r", 400.0, silent_for_s=300.0, silent_told=True, ensured_ago_s=1.0), []),
        (RunView("r", 2.0, silent_for_s=300.0, silent_told=True), ["clear_silent"]),
        (RunView("r", 40.0, silent_for_s=50.0, ensured_ago_s=1.0), ["clear_silent"]),  # it has spoken since
        (RunView("r", None, awaited_s=34.0), []),
        (RunView("r", None, awaited_s=35.0), ["mark_silent", "ensure_agent"]),
        (RunView("r", 9999.0, awaited_s=2.0), []),  # over for hours, and started again just now
    ],
)
def test_an_agent_without_news_is_looked_after_then_told(run: RunView, want: list[str]) -> None:
    assert whats(HostView("h", "ready", 1000.0, False, (run,))) == want


def test_silence_counts_from_the_moment_the_link_is_back() -> None:
    assert whats(HostView("h", "ready", 10.0, False, (RunView("r", 4000.0),))) == []
    assert whats(HostView("h", "ready", 10.0, False, (RunView("r", 4000.0, silent_for_s=50.0),))) == []
    assert whats(HostView("h", "ready", 36.0, False, (RunView("r", 4000.0, silent_for_s=50.0),))) == ["ensure_agent"]
