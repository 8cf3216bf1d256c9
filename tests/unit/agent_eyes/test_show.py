"""What the pane prints: logs of attempts in order, our own words on their own lines, the end and what comes after."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_supervise.agent.show import KEEP_GONE_S, KEEP_S, Pane, keep_s


class Seen:
    """A pane over a run directory, and what it printed."""

    def __init__(self, base: Path) -> None:
        self.run_dir, self.spare, self.out = base / "run", base / "spare", base / "out"
        (self.run_dir / "attempts").mkdir(parents=True)
        self.spare.mkdir()
        self.fd = os.open(self.out, os.O_WRONLY | os.O_CREAT)
        self.pane = Pane(str(self.run_dir), str(self.spare), self.fd)

    def log(self, attempt: int, text: str) -> None:
        folder = self.run_dir / "attempts" / str(attempt)
        folder.mkdir(exist_ok=True)
        with open(folder / "train.log", "a") as log:
            log.write(text)

    def end(self, verdict: str, generation: int) -> None:
        final = {"verdict": verdict, "cause": "none", "generation": generation}
        (self.run_dir / "final.json").write_text(json.dumps(final))

    def text(self) -> str:
        return self.out.read_text()


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[Seen]:
    found = Seen(tmp_path)
    yield found
    os.close(found.fd)


def test_a_run_that_is_started_again_is_shown_on_below_its_last_word(seen: Seen) -> None:
    seen.log(1, "step=1\nhalf a line")
    assert seen.pane.step() is False
    seen.end("crash", 1)
    assert [seen.pane.step() for _ in range(3)] == [True, True, True]
    (seen.run_dir / "final.json").unlink()
    assert seen.pane.step() is False
    seen.log(2, "step=1\n")
    assert seen.pane.step() is False
    seen.log(2, "step=2\n")
    seen.end("completed", 2)
    assert seen.pane.step() is True
    assert seen.text() == (
        "[dflash] attempt 1\nstep=1\nhalf a line\n"
        "[dflash] the run is over: crash, cause none\n"
        "[dflash] attempt 2\nstep=1\nstep=2\n"
        "[dflash] the run is over: completed, cause none\n"
    )


def test_a_restart_that_came_to_nothing_between_two_looks_is_told_too(seen: Seen) -> None:
    seen.log(1, "")
    seen.end("crash", 1)
    assert seen.pane.step() is True
    seen.end("stale_process", 2)
    assert seen.pane.step() is True
    assert seen.text().splitlines()[1:] == [
        "[dflash] the run is over: crash, cause none",
        "[dflash] the run is over: stale_process, cause none",
    ]


def test_an_attempt_that_never_had_a_log_does_not_hold_back_the_last_word(seen: Seen) -> None:
    (seen.run_dir / "attempts" / "1").mkdir()
    assert seen.pane.step() is False
    seen.end("no_log", 1)
    assert seen.pane.step() is True
    assert seen.text() == "[dflash] the run is over: no_log, cause none\n"


def test_the_last_words_can_be_read_for_a_day_and_for_minutes_where_the_run_was_deleted(tmp_path: Path) -> None:
    assert keep_s(str(tmp_path), {}) == KEEP_S
    assert keep_s(str(tmp_path / "gone"), {}) == KEEP_GONE_S < KEEP_S
