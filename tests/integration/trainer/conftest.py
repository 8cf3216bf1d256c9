"""Start the real trainer as a process of its own, the way the keeper does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import dflash_trainer
from tests.integration.trainer.forked import ForkedTrainer, start_server

DEADLINE_S = 60.0


@dataclass
class Trainer:
    """A trainer process and what it writes."""

    process: subprocess.Popen[bytes] | ForkedTrainer
    folder: Path
    output: Path
    log_file: Path

    def progress(self) -> dict[str, object]:
        try:
            found: dict[str, object] = json.loads((self.folder / "progress.json").read_text())
        except FileNotFoundError:
            return {"step": 0, "phase": None, "workers": []}
        return found

    def step(self) -> int:
        step = self.progress()["step"]
        assert isinstance(step, int)
        return step

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for something to become true while the process lives."""
        end = time.monotonic() + DEADLINE_S
        while not done():
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log()}"
            assert time.monotonic() < end, f"nothing within {DEADLINE_S:.0f} s:\n{self.log()}"
            time.sleep(0.02)

    def wait(self) -> int:
        try:
            return self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)
            raise AssertionError(f"does not end:\n{self.log()}") from None

    def workers(self) -> dict[str, int]:
        """Name -> pid of the worker processes that the trainer has told of."""
        line = re.search(r"\[workers\] (target-0=.*)", self.log())
        return {} if line is None else {name: int(pid) for name, pid in re.findall(r"(\S+)=(\d+)", line[1])}

    def log(self) -> str:
        return self.log_file.read_text()

    def done(self) -> dict[str, object] | None:
        path = self.folder / "done.json"
        return json.loads(path.read_text()) if path.exists() else None

    def losses(self) -> dict[int, set[float | None]]:
        """Every loss that any attempt has written for a step."""
        found: dict[int, set[float | None]] = {}
        for line in (self.output / "metrics.jsonl").read_text().splitlines():
            values = json.loads(line)
            if "final" not in values:
                found.setdefault(values["step"], set()).add(values["loss"])
        return found


Launch = Callable[..., Trainer]


@pytest.fixture(scope="session", autouse=True)
def _server() -> None:
    start_server()


@pytest.fixture(scope="session")
def target_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("target-cache")


@pytest.fixture
def launch(tmp_path: Path, target_cache: Path) -> Iterator[Launch]:
    """`launch("--set", "steps=5", fault=..., attempt=2, run="r-1")`; what still runs at the end is killed.

    group: the trainer leads a process group of its own, as under the keeper.
    fresh: an interpreter of its own, which imports torch itself.
    """
    started: list[Trainer] = []

    def start(
        *options: str,
        fault: str = "",
        attempt: int = 1,
        run: str = "r-1",
        preset: str | None = "tiny",
        remedies: str = "",
        group: bool = False,
        fresh: bool = False,
    ) -> Trainer:
        folder, output = tmp_path / f"attempt-{attempt}", tmp_path / "output"
        folder.mkdir(exist_ok=True)
        env = os.environ | {
            "PYTHONPATH": str(Path(dflash_trainer.__file__).parents[1]),
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            "DFLASH_RUN": f"{run}:{attempt}",
            "DFLASH_ATTEMPT_DIR": str(folder),
            "DFLASH_OUTPUT_DIR": str(output),
            "DFLASH_FAULT": fault,
            "DFLASH_REMEDIES": remedies,
        }
        argv = ["--preset", preset, "--set", f'target.cache_dir="{target_cache}"'] if preset else []
        log_file = folder / "train.log"
        process: subprocess.Popen[bytes] | ForkedTrainer
        with log_file.open("ab") as out:
            if fresh:
                process = subprocess.Popen(
                    [sys.executable, "-m", "dflash_trainer", *argv, *options],
                    env=env,
                    cwd=tmp_path,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    process_group=0 if group else None,
                )
            else:
                process = ForkedTrainer([*argv, *options], env, tmp_path, log_file, group=group)
        trainer = Trainer(process, folder, output, log_file)
        started.append(trainer)
        return trainer

    yield start
    for trainer in started:
        if trainer.process.poll() is None:
            trainer.process.kill()
            trainer.process.wait()
