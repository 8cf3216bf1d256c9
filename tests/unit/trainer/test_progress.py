from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dflash_trainer import attempt, progress
from dflash_trainer.attempt import Attempt
from dflash_trainer.exits import ConfigError

KEYS = [
    "schema", "attempt", "phase", "phase_limit_s", "step", "steps_total", "workers", "tokens", "tokens_per_s",
    "loss", "tau", "checkpoint",
]  # fmt: skip


def read(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "progress.json").read_text())
    return found


def test_the_file_has_the_keys_of_the_contract(tmp_path: Path) -> None:
    reporter = progress.Reporter(Attempt("r", 3, tmp_path, tmp_path), {"saving": 60.0})
    reporter.update(
        step=4, workers=(progress.Worker("drafter-0", "cpu", 4, True),), checkpoint=progress.Saved(2, 1.0, None)
    )
    reporter.phase("saving")
    found = read(tmp_path)
    assert list(found) == KEYS
    assert (found["attempt"], found["phase"], found["phase_limit_s"]) == (3, "saving", 60.0)
    assert found["workers"] == [{"id": "drafter-0", "device": "cpu", "step": 4, "alive": True}]
    assert found["checkpoint"] == {"step": 2, "begun": 1.0, "done": None}
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_what_is_not_a_number_is_unknown_not_zero(tmp_path: Path) -> None:
    reporter = progress.Reporter(Attempt("r", 1, tmp_path, tmp_path))
    reporter.update(loss=math.nan, tokens_per_s=math.inf)
    assert read(tmp_path)["loss"] is None
    assert read(tmp_path)["tokens_per_s"] is None
    assert read(tmp_path)["tau"] is None


def test_small_movements_are_written_at_most_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    reporter = progress.Reporter(Attempt("r", 1, tmp_path, tmp_path))
    reporter.tick(tokens=1)
    clock[0] = 100.9
    reporter.tick(tokens=2)
    assert read(tmp_path)["tokens"] == 1
    clock[0] = 101.0
    reporter.tick(tokens=3)
    assert read(tmp_path)["tokens"] == 3


def test_the_completion_marker_carries_the_attempts_token(tmp_path: Path) -> None:
    path = progress.write_done(Attempt("demo-1", 2, tmp_path, tmp_path), {"step": 9})
    assert json.loads(path.read_text()) == {"schema": 1, "run": "demo-1:2", "attempt": 2, "step": 9}


def test_the_environment_says_who_we_are_and_where_we_write(tmp_path: Path) -> None:
    env = {
        "DFLASH_RUN": "demo-1:2",
        "DFLASH_OUTPUT_DIR": str(tmp_path / "o"),
        "DFLASH_ATTEMPT_DIR": str(tmp_path / "a"),
    }
    me = attempt.from_environment(env)
    assert (me.run, me.number, me.token) == ("demo-1", 2, "demo-1:2")
    assert (me.output, me.folder) == (tmp_path / "o", tmp_path / "a")
    alone = attempt.from_environment({}, output=str(tmp_path / "x"))
    assert (alone.token, alone.folder) == ("local:1", tmp_path / "x")


@pytest.mark.parametrize("token", ["demo", "demo:0", "demo:x", "Demo:1", ":1"])
def test_a_token_that_names_no_attempt_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(ConfigError, match="DFLASH_RUN"):
        attempt.from_environment({"DFLASH_RUN": token}, output=str(tmp_path))
