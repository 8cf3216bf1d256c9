"""A store and a daemon made of plain values, with runs as they are met in life."""

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
from dflash_supervise.core.verdicts import Evidence, Finding, Status, Verdict
from dflash_supervise.web.control import Doc, Refused
from dflash_supervise.web.words import rfc3339
from dflash_supervise.wire import to_json

GIB = 1024**3
POWER_W = {"working": 612.0, "starved": 201.0, "spinning": 125.8, "idle": 123.0, "off": 78.0}
UTIL_PCT = {"working": 98.0, "starved": 1.0, "spinning": 100.0, "idle": 0.0, "off": 0.0}


class FakeStore:
    """What the daemon's store would answer; ``put_*`` is what applying records would do."""

    def __init__(self) -> None:
        self.docs: dict[str, Doc] = {}
        self.verdicts: dict[str, Doc] = {}
        self.incident_docs: list[Doc] = []
        self.rows: list[Doc] = []
        self.logs: dict[str, tuple[int, bytes]] = {}
        self.series_docs: dict[str, Doc] = {}
        self.broken = False

    def put_run(self, doc: Doc) -> None:
        self.docs[doc["id"]] = doc

    def put_record(self, run_id: str, record: Doc) -> int:
        row = self.last_row() + 1
        self.rows.append({"row": row, "run": run_id, "record": {"v": 1, "run": run_id, **record}})
        if record["kind"] == "verdict":
            self.verdicts[run_id] = record
        return row

    def runs(self) -> list[Doc]:
        return [self._aged(doc) for doc in self.docs.values()]

    def run(self, name: str) -> Doc | None:
        named = [doc for doc in self.docs.values() if name in (doc["id"], doc["name"])]
        return self._aged(named[-1]) if named else None

    def why(self, run_id: str) -> Doc | None:
        mine = [item for item in self.incident_docs if item["run"] == run_id]
        mine.sort(key=lambda item: item["state"] == "resolved")
        return {
            "run": self._aged(self.docs[run_id]),
            "verdict": self.verdicts.get(run_id),
            "incidents": mine,
            "age_s": 1.0,
        }

    def records(
        self, run_id: str, *, after: int = 0, kinds: Sequence[str] = (), limit: int = 500, newest: bool = False
    ) -> list[Doc]:
        found = [
            {**item["record"], "row": item["row"]}
            for item in self.rows
            if item["run"] == run_id and item["row"] > after and (not kinds or item["record"]["kind"] in kinds)
        ]
        return found[-limit:] if newest else found[:limit]

    def log(
        self, run_id: str, *, attempt: int | None = None, offset: int | None = None, limit: int = 65536
    ) -> Doc | None:
        if run_id not in self.logs or (attempt is not None and attempt != self.logs[run_id][0]):
            return None
        number, data = self.logs[run_id]
        at = max(0, len(data) - limit) if offset is None else offset
        text = data[at : at + limit].decode("utf-8", "replace")
        return {"attempt": number, "offset": at, "size": len(data), "text": text}

    def series(self, run_id: str, *, since_s: float) -> Doc:
        return self.series_docs.get(run_id, {"t": [], "loss": [], "tokens_per_s": [], "gpus": {}})

    def incidents(self) -> list[Doc]:
        return sorted(self.incident_docs, key=lambda item: item["state"] == "resolved")

    def last_row(self) -> int:
        if self.broken:
            raise OSError("the disk is gone")
        return self.rows[-1]["row"] if self.rows else 0

    def feed(self, after: int, limit: int) -> list[Doc]:
        return [item for item in self.rows if item["row"] > after][:limit]

    def _aged(self, doc: Doc) -> Doc:
        at = doc.get("news_unix")
        return {**doc, "news_age_s": None if at is None else max(0.0, time.time() - at)}


class FakeControl:
    """Remembers what it was asked; refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.refusal: Refused | None = None
        self.host_docs: list[Doc] = []

    def start(self, request: Doc) -> str:
        return self._ask("start", request) or "op-1"

    def operation(self, operation_id: str) -> Doc | None:
        if operation_id != "op-1":
            return None
        return {"state": "done", "lines": ["pushed the agent"], "run_id": "qwen-b16-1", "error": None}

    def set_goal(self, run_id: str, goal: Doc) -> Doc:
        self._ask("set_goal", (run_id, goal))
        return {"generation": 4, "acknowledged": False}

    def adopt(self, request: Doc) -> str:
        return self._ask("adopt", request) or "op-1"

    def doctor(self, request: Doc) -> str:
        return self._ask("doctor", request) or "op-1"

    def trust(self, target: str, fingerprint: str) -> Doc:
        self._ask("trust", (target, fingerprint))
        return {"trusted": True}

    def hosts(self) -> list[Doc]:
        return list(self.host_docs)

    def shutdown(self) -> None:
        self._ask("shutdown", None)

    def _ask(self, what: str, value: Any) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append((what, value))
        return ""


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


__all__ = [
    "Evidence",
    "FakeControl",
    "FakeStore",
    "Finding",
    "Status",
    "Verdict",
    "gpu_docs",
    "incident",
    "observation",
    "ok_findings",
    "run_doc",
    "series",
]
