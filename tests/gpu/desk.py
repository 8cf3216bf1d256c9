"""A supervisor on the GPU machine itself (``local:``), and what a scene asks of it: when was what seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.e2e.product import Product

PROGRAM = (sys.executable, "-m", "tests.gpu.cli")
HEALTHY = frozenset({"starting", "running", "completed"})
ROOT = Path(__file__).parents[2]


class Desk(Product):
    """The product with a home of its own; ``start`` and the rest as in the end-to-end tests."""

    _beside: list[subprocess.Popen[str]]

    def program_of(self, name: str, *words: str) -> list[str]:
        """One of ``tests/gpu/programs`` as a command."""
        return [sys.executable, str(ROOT / "tests/gpu/programs" / f"{name}.py"), *words]

    def beside(self, name: str, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """A program that nobody supervises, once it has said its first line."""
        child = subprocess.Popen(
            self.program_of(name, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self._beside.append(child)
        assert child.stdout is not None and child.stdout.readline(), f"{name} did not begin"
        return child

    def close(self) -> None:
        for child in self._beside:
            child.kill()
            child.wait()
        super().close()
        tmux = ["tmux", "-L", f"dflash-{os.getuid()}", "kill-server"]
        subprocess.run(tmux, stderr=subprocess.DEVNULL, check=False)

    # ---- when what was seen; seconds since 1970, all on this machine's clock

    def verdict_at(self, run_id: str, attempt: int = 1, within_s: float = 120.0) -> dict[str, Any]:
        """The first confirmed bad verdict of an attempt, as its record."""
        found: list[dict[str, Any]] = []

        def told() -> bool:
            found[:] = [
                record
                for record in self.records(run_id, "verdict")
                if record["attempt"] == attempt and record["verdict"] not in HEALTHY and not record.get("suspected")
            ]
            return bool(found)

        self.wait(f"a verdict on attempt {attempt}", told, within_s)
        return found[0]

    def fault_at(self, run_id: str, attempt: int = 1) -> float:
        """When the bundled trainer announced the fault that it injected into itself."""
        log = (self.run_dir(run_id) / "attempts" / str(attempt) / "train.log").read_text(errors="replace")
        line = next(line for line in log.splitlines() if "[fault]" in line)
        return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()

    def next_step_at(self, run_id: str, attempt: int, within_s: float = 180.0) -> float:
        self.wait(f"a step of attempt {attempt}", lambda: self.attempt_steps(run_id, attempt), within_s)
        return time.time()

    def attempt_steps(self, run_id: str, attempt: int) -> bool:
        run = self.run(run_id)
        return int(run["attempt"] or 0) >= attempt and run["verdict"] == "running" and run["step"] is not None

    def proven(self, run_id: str) -> str:
        """What the last stop or launch said of the GPUs: a launch happens on a proof only."""
        outcomes = [one for one in self.records(run_id, "outcome") if one["type"].lower() in ("stop", "launch")]
        return "free" if outcomes and outcomes[-1]["ok"] else "not proven"

    def classes(self, run_id: str) -> list[str]:
        return [str(gpu.get("class")) for gpu in self.run(run_id)["gpus"]]


def read_at(record: dict[str, Any]) -> float:
    return datetime.fromisoformat(str(record["at"]).replace("Z", "+00:00")).timestamp()


@contextmanager
def desk() -> Iterator[Desk]:
    """A desk in a folder of its own; its daemon and its runs end with it."""
    with tempfile.TemporaryDirectory(prefix="dflash-gpu-") as name:
        home = Path(name)
        folders = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "XDG_RUNTIME_DIR": "run"}
        for key, folder in {**folders, "TMUX_TMPDIR": "tmux"}.items():
            (home / folder).mkdir(mode=0o700)
            os.environ[key] = str(home / folder)
        path = [str(ROOT), str(ROOT / "supervisor"), str(ROOT / "trainer"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(word for word in path if word)
        (home / "w").mkdir()
        made = Desk(home, home / "w", home / "cache", host="local", program=PROGRAM)
        made._beside = []
        try:
            yield made
        finally:
            made.close()


def findings(made: Desk, run_id: str) -> list[dict[str, Any]]:
    """The verdicts that were not healthy, with what each rests on."""
    return [record for record in made.records(run_id, "verdict") if record["verdict"] not in HEALTHY]


def gpu_rows(made: Desk, run_id: str) -> list[list[dict[str, Any]]]:
    """The GPUs of every stored observation of a run."""
    rows = []
    for record in made.records(run_id, "observation"):
        gpus = (record.get("obs") or {}).get("gpus") or {}
        rows.append([dict(one) for one in gpus.get("gpus") or []])
    return rows


def dump(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1))
