"""Documents and records in the shapes of the API, changed where a test says so."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import Any

from dflash_supervise.core.facts import (
    AttemptFact,
    ExitReading,
    GpuReading,
    GpusReading,
    HostReading,
    LogReading,
    Missing,
    Observation,
    ProcessesReading,
    ProcessFact,
    ProgressReading,
    WorkerFact,
)
from dflash_supervise.core.verdicts import Finding, Status
from dflash_supervise.web.control import Doc
from dflash_supervise.web.words import rfc3339
from dflash_supervise.wire import to_json

GIB = 1024**3
POWER_W = {"working": 612.0, "starved": 201.0, "spinning": 125.8, "idle": 123.0, "off": 78.0}
UTIL_PCT = {"working": 98.0, "starved": 1.0, "spinning": 100.0, "idle": 0.0, "off": 0.0}


def uuid(index: int, seed: int = 0) -> str:
    return f"GPU-{seed:04x}-{index:02x}"


def gpu_docs(kinds: Sequence[str], *, mem_gib: float = 61.2, seed: int = 0) -> list[Doc]:
    return [
        {
            "index": index,
            "uuid": uuid(index, seed),
            "class": kind,
            "util_pct": UTIL_PCT.get(kind),
            "power_w": POWER_W.get(kind),
            "mem_used_bytes": None if kind == "unknown" else int(mem_gib * GIB),
            "mem_total_bytes": 141 * GIB,
            "temp_c": 61.0,
        }
        for index, kind in enumerate(kinds)
    ]


def run_doc(name: str, now: float, **changes: Any) -> Doc:
    """A healthy run, changed where a test says so."""
    doc: Doc = {
        "id": f"{name}-2605041203-1a2b",
        "name": name,
        "host": "lab8",
        "target": "lab8:/workspace",
        "workspace": "/workspace",
        "kind": "bundled",
        "preset": "auto",
        "goal": {"want": "run", "generation": 3, "acknowledged": True, "since": rfc3339(now - 9000)},
        "verdict": "running",
        "cause": "none",
        "sentence": "Training: step 12,480 made 2 s ago, 8 of 8 GPUs working.",
        "suspected": False,
        "phase": "training",
        "attempt": 1,
        "step": 12480,
        "steps_total": 40000,
        "loss": 2.318,
        "tokens_per_s": 48210.0,
        "tau": 3.42,
        "checkpoint_step": 12400,
        "eta_s": 61200.0,
        "gpus": gpu_docs(["working"] * 8),
        "verdict_age_s": 0.5,
        "news_at": rfc3339(now),
        "news_unix": now,
        "reachable": True,
        "unreachable_since": None,
        "created_at": rfc3339(now - 9000),
        "final": False,
        "exit_status": None,
        "open_incidents": 0,
        "notes": [],
    }
    return {**doc, **changes}


def observation(
    run: Doc, *, at_s: float = 90000.0, exit: ExitReading | None = None, log: LogReading | Missing | None = None
) -> Doc:
    """The observation record that fits a run's document."""
    alive = exit is None and run["attempt"] > 0
    members = tuple(
        ProcessFact(pid=4000 + n, start_ticks=n, ppid=1, pgid=4000, sid=4000, state="S", comm="python",
                    cpu_s=100.0, threads=41, rss_bytes=3 * GIB, via="tree")
        for n in range(9 if alive else 0)
    )  # fmt: skip
    workers = tuple(
        WorkerFact(
            f"train-{gpu['index']}",
            f"cuda:{gpu['index']}",
            run["step"],
            run["phase"] != "training" or gpu["class"] != "idle",
        )
        for gpu in run["gpus"]
    )
    seen = Observation(
        at_s=at_s,
        attempt=AttemptFact(run["attempt"], launched_at_s=at_s - 4000),
        processes=ProcessesReading(members, main_alive=alive if run["attempt"] else None, keeper_alive=alive),
        progress=ProgressReading(
            phase=run["phase"] or "training",
            step=run["step"],
            steps_total=run["steps_total"],
            workers=workers,
            loss=run["loss"],
            checkpoint_step=12400,
            checkpoint_done=True,
        )
        if run["attempt"]
        else Missing("nothing was launched"),
        log=log or LogReading(exists=run["attempt"] > 0, size_bytes=1_843_200, body_bytes=1_843_100),
        gpus=GpusReading(
            tuple(
                GpuReading(
                    uuid=gpu["uuid"],
                    index=gpu["index"],
                    util_pct=gpu["util_pct"],
                    power_w=gpu["power_w"],
                    power_limit_w=700.0,
                    mem_used_bytes=gpu["mem_used_bytes"],
                    mem_total_bytes=gpu["mem_total_bytes"],
                )
                for gpu in run["gpus"]
            )
        ),
        host=HostReading(boot_id="b"),
        exit=exit,
    )
    return {
        "kind": "observation",
        "at": rfc3339(time.time()),
        "received_at": rfc3339(time.time()),
        "obs": to_json(seen),
        "gpu_class": {gpu["uuid"]: gpu["class"] for gpu in run["gpus"]},
        "ages": {"step": 1.4, "log": 0.6, "gpu_work": 0.2},
    }


def ok_findings() -> list[Doc]:
    return [
        to_json(Finding("exited", Status.OK, "The main process lives.")),
        to_json(Finding("no_log", Status.OK, "The log holds 1.8 MB beyond our header.")),
        to_json(Finding("hang", Status.OK, "A step was made 1.4 s ago; the limit is 30 s.", held_s=0.0)),
        to_json(Finding("worker_lost", Status.OK, "All 8 workers moved within the last step.")),
    ]


def series(
    now: float,
    kinds: Sequence[Sequence[tuple[float, str]]],
    *,
    seed: int = 0,
    quiet_s: float = 0.0,
    loss_end: float = 2.3,
    tok_s: float = 48000.0,
) -> Doc:
    """Half an hour at 5 s; ``kinds`` holds each GPU's classes with the seconds before now at which they begin."""
    rng = random.Random(seed)
    times = [now - 1800 + 5 * n for n in range(361)]
    loss, rate = [], []
    for n, at in enumerate(times):
        silent = now - at < quiet_s or all(plan_at(plan, now - at) not in ("working", "starved") for plan in kinds)
        loss.append(None if silent else loss_end + 1.5 * math.exp(-n / 120) + rng.gauss(0, 0.025))
        rate.append(None if silent else max(0.0, tok_s + rng.gauss(0, 900)))
    gpus = {}
    for index, plan in enumerate(kinds):
        classes = [plan_at(plan, now - at) for at in times]
        gpus[uuid(index, seed)] = {
            "class": classes,
            "util_pct": [UTIL_PCT.get(kind) for kind in classes],
            "power_w": [POWER_W.get(kind) for kind in classes],
        }
    return {"t": times, "loss": loss, "tokens_per_s": rate, "gpus": gpus}


def plan_at(plan: Sequence[tuple[float, str]], before_s: float) -> str:
    """What a plan says for a moment so many seconds before now."""
    return [kind for since, kind in plan if before_s <= since or since == plan[0][0]][-1]


def incident(run: Doc, now: float, **changes: Any) -> Doc:
    doc: Doc = {
        "id": f"inc-{run['id']}",
        "run": run["id"],
        "attempt": run["attempt"],
        "verdict": run["verdict"],
        "cause": run["cause"],
        "severity": "page",
        "state": "open",
        "since_s": 41.0,
        "sentence": run["sentence"],
        "key_line": "",
        "evidence": [],
        "response": "wait",
        "response_text": "",
        "opened_at": rfc3339(now - 41),
        "resolved_at": None,
    }
    return {**doc, **changes}
