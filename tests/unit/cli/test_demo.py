"""The demo's judgement of itself: it must notice everything that did not happen."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.cli import say
from dflash_supervise.cli.errors import CliError
from dflash_supervise.config import load
from dflash_supervise.demo import place, play, story, telling, watched

CRASH, HANG = play.EXPECTED
AT = "2026-11-30 05:00:{:02d},{:03d}"


def log(attempt: int, second: float, text: str) -> story.LogLine:
    at = AT.format(int(second), int(second % 1 * 1000))
    line = story.read_line(f"{at} INFO {text}", attempt)
    assert line is not None
    return line


def record(attempt: int, second: float, verdict: str, cause: str, **more: Any) -> dict[str, Any]:
    local = datetime(2026, 11, 30, 5, 0, int(second), int(second % 1 * 1e6)).astimezone()
    return {"kind": "verdict", "attempt": attempt, "verdict": verdict, "cause": cause, "at": local.isoformat(), **more}


def steps(attempt: int, second: float, first: int, last: int) -> list[story.LogLine]:
    return [
        log(attempt, second + (n - first) * 0.01, f"[train] step={n} loss={3 - 2.5 * n / 200:.4f} tok/s=100 tau=-")
        for n in range(first, last + 1)
    ]


def good() -> tuple[list[story.LogLine], list[dict[str, Any]], dict[str, Any]]:
    lines = [
        log(1, 0, "[eval] step=0 tau=1.050 tau_per_prompt=1.1 identical=6/6 ties=0"),
        *steps(1, 1, 1, 49),
        log(1, 10, "[fault] injecting=exception step=50"),
        log(2, 14, "[checkpoint] resumed=step-00000040 step=40"),
        *steps(2, 15, 41, 109),
        log(2, 20, "[fault] injecting=hang-lock step=110"),
        log(2, 20.001, "[fault] injecting=hang-lock step=110"),
        log(3, 39, "[checkpoint] resumed=step-00000109 step=109"),
        *steps(3, 40, 110, 200),
        log(3, 50, "[eval] step=200 tau=4.400 tau_per_prompt=4.5 identical=6/6 ties=0"),
    ]
    records = [
        record(1, 1, "running", "none"),
        record(1, 10.4, "crash", "rank_exception"),
        record(2, 15, "running", "none"),
        record(2, 26, "hang", "none", suspected=True),
        record(2, 32.5, "hang", "lock_deadlock"),
        record(3, 50, "completed", "none"),
    ]
    return lines, records, {"attempt": 3, "verdict": "completed", "exit_status": 0}


def told(lines: list[story.LogLine], records: list[dict[str, Any]], run: dict[str, Any]) -> story.Story:
    return story.tell(lines, records, run, play.EXPECTED)


def test_a_demo_in_which_everything_happened_misses_nothing_and_tells_the_seconds() -> None:
    seen = told(*good())
    assert story.missing(seen) == []
    crash, hang = seen.cures
    assert (crash.verdict_after_s, crash.next_step_after_s) == (pytest.approx(0.4), pytest.approx(5.0))
    assert (hang.verdict_after_s, hang.next_step_after_s) == (pytest.approx(12.5), pytest.approx(20.0))
    assert (crash.resumed_step, hang.resumed_step) == (40, 109)
    text = "\n".join(telling.closing(seen, 70.0, say.PLAIN))
    for part in ("crash, rank_exception", "0.4 s", "5 s", "hang, lock_deadlock", "12 s", "20 s", "1.05", "4.40", "6/6"):
        assert part in text
    assert max(len(line) for line in text.splitlines()) <= 80


Break = Callable[[list[story.LogLine], list[dict[str, Any]], dict[str, Any]], None]


def drop(lines: list[Any], wanted: Callable[[Any], bool]) -> None:
    lines[:] = [one for one in lines if not wanted(one)]


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (lambda lines, records, run: drop(lines, lambda x: x.part == "fault" and x.attempt == 1), "never injected"),
        (lambda lines, records, run: drop(records, lambda x: x["verdict"] == "crash"), "got no verdict"),
        (lambda lines, records, run: records[4].update(suspected=True), "got no verdict"),
        (lambda lines, records, run: records[1].update(cause="none"), "was called crash, none"),
        (lambda lines, records, run: records[4].update(verdict="partial_stall"), "was called partial_stall"),
        (lambda lines, records, run: drop(lines, lambda x: x.attempt == 3 and x.part == "train"), "no step was made"),
        (lambda lines, records, run: drop(lines, lambda x: "resumed" in x.fields), "did not go on from a checkpoint"),
        (
            lambda lines, records, run: drop(lines, lambda x: "loss" in x.fields and x.attempt != 2),
            "the loss did not fall",
        ),
        (lambda lines, records, run: drop(lines, lambda x: x.part == "train"), "too few steps"),
        (lambda lines, records, run: drop(lines, lambda x: x.part == "eval"), "acceptance was not measured"),
        (lambda lines, records, run: lines.append(log(3, 51, "[eval] step=200 tau=1.2")), "did not rise"),
        (lambda lines, records, run: lines.append(log(3, 51, "[eval] step=200 tau=9 identical=5/6")), "only 5/6"),
        (lambda lines, records, run: run.update(verdict="crash", exit_status=100), "did not end as completed"),
        (lambda lines, records, run: run.update(attempt=4), "4 attempts"),
    ],
)
def test_whatever_did_not_happen_is_named(breaks: Break, said: str) -> None:
    lines, records, run = good()
    breaks(lines, records, run)
    assert any(said in sentence for sentence in story.missing(told(lines, records, run))), said


def test_a_demo_of_which_nothing_was_seen_can_be_told_too() -> None:
    seen = told([], [], {})
    assert len(story.missing(seen)) >= 5
    assert telling.closing(seen, 1.0, say.PLAIN)


def test_the_example_configuration_is_valid_and_says_that_its_limits_are_short() -> None:
    folder = play._examples()
    settings = load(files=(folder / "demo.toml",), environ={})
    opening = " ".join(telling.opening(*play._limits(settings), "demo.toml", say.PLAIN))
    assert "THE LIMITS ARE SHORTENED" in opening and "6 s is suspected" in opening and "30 s and" in opening
    assert "SHORTENED" in (folder / "demo.toml").read_text()


def test_the_demos_processes_see_nothing_of_the_users_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFLASH_SUPERVISE_SLACK_WEBHOOK", "https://hooks.slack.com/x")
    monkeypatch.setenv("TMUX", "/tmp/tmux-1/default,1,0")
    env = place.environment(place.Place(tmp_path), tmp_path / "demo.toml", 8123)
    assert "DFLASH_SUPERVISE_SLACK_WEBHOOK" not in env and "TMUX" not in env
    assert (
        load(environ={k: v for k, v in env.items() if k.startswith("DFLASH_") and "CONFIG" not in k}).daemon.port
        == 8123
    )


def test_a_port_that_is_taken_is_not_chosen() -> None:
    import socket

    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", place.DASHBOARD_PORT))
        except OSError:
            pass  # somebody has it already, which is as good
        taken.listen()
        assert place.free_port() != place.DASHBOARD_PORT


def test_only_processes_of_this_place_are_found(tmp_path: Path) -> None:
    import subprocess

    here = place.Place(tmp_path)
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, "XDG_RUNTIME_DIR": str(here.runtime)})
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, "XDG_RUNTIME_DIR": f"{here.runtime}x"})
    try:
        assert [left.pid for left in place.processes(here)] == [child.pid]
        killed = place.end(here, patience_s=0.0, environ={"PATH": "/nowhere"})
        assert [left.pid for left in killed] == [child.pid] and child.wait(10) == -9
        assert other.poll() is None
    finally:
        for one in (child, other):
            one.kill()
            one.wait()


def test_the_demo_takes_the_port_of_the_environment_unless_an_option_says_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, "free_port", lambda: 4711)
    monkeypatch.delenv("DFLASH_SUPERVISE_DAEMON_PORT", raising=False)
    monkeypatch.setenv("DFLASH_SUPERVISE_NO_SUCH_KEY", "x")  # no other setting of the user's reaches the demo
    assert play._port(play.Options()) == 4711
    monkeypatch.setenv("DFLASH_SUPERVISE_DAEMON_PORT", "8123")
    assert play._port(play.Options()) == 8123
    assert play._port(play.Options(port=0)) == 0
    monkeypatch.setenv("DFLASH_SUPERVISE_DAEMON_PORT", "many")
    with pytest.raises(CliError, match="whole number") as error:
        play._port(play.Options())
    assert error.value.exit_code == 2


def test_lines_of_others_are_no_lines_of_the_trainer() -> None:
    assert story.read_line("step=1 loss=2", 1) is None
    line = log(1, 0, "[train] step=1 loss=oops")
    assert line.number("loss") is None and line.number("step") == 1
    assert replace(line, part="x").part == "x"


class GrowingLog:
    """The daemon's answers about a log that grows with every look, some of them shorter than what was asked for."""

    def __init__(self, body: bytes) -> None:
        self.body, self.size = body, 0

    def get(self, _path: str, *, attempt: int, offset: int, limit: int) -> dict[str, Any]:
        self.size = min(self.size + 50, len(self.body))
        text = self.body[offset : min(offset + 30, self.size)].decode()
        after = offset + len(text)
        return {"attempt": attempt, "offset": offset, "next": after, "size": self.size, "text": text}


def test_the_demo_reads_every_line_once_however_the_log_is_cut() -> None:
    lines = [f"2026-11-30 05:00:00,000 INFO [train] step={n} loss=2.0 tok/s=100 tau=-\n" for n in range(40)]
    api: Any = GrowingLog("".join(lines).encode())
    seen = watched.Watched()
    for _look in range(60):
        seen.lines += watched.new_lines(api, "r", 1, seen)
    assert [line.number("step") for line in seen.lines] == list(range(40))
