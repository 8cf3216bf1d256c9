"""Threads against processes: ``python -m tests.bench.trainer_workers`` prints one table, the CPU's by default."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import dflash_trainer

WARM_STEPS = 5  # not counted
STEP = re.compile(r"^(\S+ \S+) INFO \[train\] step=(\d+) ", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One run, seen from outside."""

    first_step_s: float  # from exec to the end of step 1
    steps_per_s: float
    cpu_s: float  # of the trainer and every worker


def main() -> None:
    """Each layout with both kinds of workers in turns; the target is made once before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder), options.preset, 1, "threads", 1)
        head = ("workers", "drafters", "turn", "step 1 after s", "steps/s", "CPU s")
        print(f"{head[0]:<11}{head[1]:>9}{head[2]:>6}{head[3]:>16}{head[4]:>9}{head[5]:>8}")
        for drafters in (1, 2):
            for turn in range(options.turns):
                for workers in ("threads", "processes"):
                    row = _run(Path(folder), options.preset, options.steps, workers, drafters)
                    print(
                        f"{workers:<11}{drafters:>9}{turn + 1:>6}{row.first_step_s:>16.1f}"
                        f"{row.steps_per_s:>9.2f}{row.cpu_s:>8.1f}",
                        flush=True,
                    )


def _run(folder: Path, preset: str, steps: int, workers: str, drafters: int) -> Row:
    settings = {
        "steps": steps,
        "target.cache_dir": f'"{folder / "cache"}"',
        "layout.workers": workers,
        "layout.drafter_workers": drafters,
        "checkpoint.every_steps": steps,
        "eval.every_steps": 0,
    }
    argv = [sys.executable, "-m", "dflash_trainer", "--preset", preset]
    argv += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    env = os.environ | {"PYTHONPATH": str(Path(dflash_trainer.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    began_at = time.time()
    with tempfile.TemporaryDirectory(dir=folder) as output, (folder / "log").open("w+") as log:
        process = subprocess.Popen([*argv, "--output", output], env=env, stdout=log, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        text = log.read()
    assert process.returncode == 0, text
    at = {int(step): datetime.fromisoformat(stamp).timestamp() for stamp, step in STEP.findall(text)}
    counted = max(steps - WARM_STEPS, 1)
    took_s = at[steps] - at[max(steps - counted, 1)]
    return Row(at[1] - began_at, counted / took_s if took_s else 0.0, used.ru_utime + used.ru_stime)


if __name__ == "__main__":
    main()
