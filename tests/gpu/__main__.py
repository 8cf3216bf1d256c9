"""``python -m tests.gpu [SCENE...] [--out FILE]``: run the scenes on this machine's GPUs and print one table."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from tests.gpu.desk import Desk, desk, findings, gpu_rows
from tests.gpu.scenes import SCENES, Row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", nargs="*", choices=[*SCENES, []], help="default: all")
    parser.add_argument("--out", type=Path, help="also write rows and readings as JSON")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu: torch sees no GPU on this machine", file=sys.stderr)
        return 2
    names = given.scenes or list(SCENES)
    rows: list[Row] = []
    readings: dict[str, Any] = {}
    print(_machine(), flush=True)
    for name in names:
        began = time.time()
        with desk() as made:
            try:
                found = SCENES[name](made)
            except Exception:  # a scene that breaks is a row that is wrong, and the others still run
                traceback.print_exc()
                found = [Row(name, "an answer", "the scene broke")]
            readings[name] = _readings(made)
        for row in found:
            print(_line(row), flush=True)
        print(f"  ({name}: {time.time() - began:.0f} s)", flush=True)
        rows += found
        if given.out:
            data = {"machine": _machine(), "rows": [vars(row) for row in rows], "readings": readings}
            given.out.write_text(json.dumps(data))
    wrong = [row for row in rows if not row.right]
    print(f"{len(rows) - len(wrong)} of {len(rows)} rows right")
    return 1 if wrong else 0


def _machine() -> str:
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{len(names)} x {names[0]}, torch {torch.__version__}, Python {platform.python_version()}"


def _readings(made: Desk) -> dict[str, Any]:
    try:
        runs = [run["id"] for run in made.get("/runs")["runs"]]
        return {run_id: {"gpus": gpu_rows(made, run_id), "verdicts": findings(made, run_id)} for run_id in runs}
    except Exception as error:
        return {"error": str(error)}


def _line(row: Row) -> str:
    sign = "ok " if row.right else "BAD"
    first = f"{row.verdict_s:7.1f}" if row.verdict_s is not None else "       "
    then = f"{row.next_step_s:7.1f}" if row.next_step_s is not None else "       "
    return f"{sign} {row.scene:28} {row.got:36} {first} {then}  {row.gpus:24} {row.note}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
