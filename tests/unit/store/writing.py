"""Records as an agent writes them, and a store with a clock that the test turns."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dflash_supervise.store import Store

Doc = dict[str, Any]

RUN = "demo-2601010000-abcd"
BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def spec(run_id: str = RUN, **more: Any) -> Doc:
    return {
        "schema": 1,
        "run_id": run_id,
        "name": run_id.split("-", maxsplit=1)[0],
        "workspace": "/w",
        "generation": 1,
        "owner": "sup-1",
        "goal": {"want": "run", "hold_for_s": None, "end_attempt": None},
        "kind": "bundled",
        "gpus": "all",
        "policy": {"preset": "auto"},
        "highest_attempt": 0,
        "trainer_hash": None,
        "output_dir": "/w/runs/x",
        "adopt": None,
        **more,
    }


@dataclass
class Clock:
    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Writer:
    """Numbers records like one agent's journal; a second a record unless told otherwise."""

    run: str = RUN
    epoch: str = "000001-aaaa"
    seq: int = 0
    t_s: float = 1000.0
    written: list[Doc] = field(default_factory=list)

    def __call__(self, kind: str, *, after_s: float = 1.0, **payload: Any) -> Doc:
        self.seq += 1
        self.t_s += after_s
        at = (BEGAN + dt.timedelta(seconds=self.t_s)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = {"v": 1, "run": self.run, "epoch": self.epoch, "seq": self.seq, "t_s": self.t_s, "at": at, "kind": kind}
        self.written.append({**head, **payload})
        return self.written[-1]

    def observation(self, *, after_s: float = 1.0, attempt: int = 1, step: int = 0, **progress: Any) -> Doc:
        obs = {
            "at_s": self.t_s,
            "attempt": {"number": attempt},
            "processes": {"members": [], "main_alive": True, "keeper_alive": True},
            "progress": {"phase": "training", "step": step, "steps_total": 100, **progress},
            "log": {"exists": True, "size_bytes": 10},
            "gpus": {"gpus": [{"uuid": "GPU-a", "index": 0, "util_pct": 90.0, "power_w": 300.0}]},
            "host": {"type": "Missing", "reason": "not asked"},
        }
        return self("observation", after_s=after_s, obs=obs, gpu_class={"GPU-a": "working"})

    def verdict(self, verdict: str, *, attempt: int = 1, cause: str = "none", final: bool = False, **more: Any) -> Doc:
        payload = {"suspected": False, "phase": "training", "since_s": self.t_s, "notes": [], "findings": [], **more}
        return self(
            "verdict",
            attempt=attempt,
            verdict=verdict,
            cause=cause,
            sentence=f"it is {verdict}",
            next={"what": "nothing", "in_s": None, "why": ""},
            final=final,
            **payload,
        )

    def incident(self, verdict: str, cause: str, *, attempt: int = 1, state: str = "open", **more: Any) -> Doc:
        payload = {
            "severity": "warn",
            "sentence": f"it is {verdict} by {cause}",
            "since_s": self.t_s,
            "key_line": "RuntimeError: injected fault",
            "evidence": [{"what": "exit code", "value": 1}],
            "response": "restart",
            "response_text": "restarting (1 of 3)",
            **more,
        }
        return self(
            "incident", id=f"{attempt}-{cause}", attempt=attempt, verdict=verdict, cause=cause, state=state, **payload
        )

    def attempt_start(self, attempt: int) -> Doc:
        return self("attempt_start", attempt=attempt, because="the goal is run", remedies=[], pid=100 + attempt)

    def attempt_end(self, attempt: int, verdict: str, cause: str = "none") -> Doc:
        facts = {"key_line": "k", "code": 1, "signal": None, "step": 5, "checkpoint_step": 4, "ran_s": 9.0}
        return self("attempt_end", attempt=attempt, verdict=verdict, cause=cause, **facts)

    def spec(self, generation: int, want: str = "run", **goal: Any) -> Doc:
        return self("spec", generation=generation, goal={"want": want, **goal}, owner="sup-1")


def open_store(folder: Path, clock: Clock | None = None, **run: Any) -> Store:
    """A store with one run on host ``lab8``."""
    store = Store(f"sqlite:///{folder / 'store.sqlite3'}", clock=clock or Clock())
    store.add_run(spec(**run), host="lab8", target="lab8:/w")
    store.set_link("lab8", "ready")
    return store


def told(store: Store) -> list[tuple[str, str]]:
    """(kind, key without the run) of all messages, oldest first."""
    return [(one["kind"], one["key"].partition("/")[2]) for one in reversed(store.messages())]
