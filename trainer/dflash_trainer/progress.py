"""progress.json and done.json: what the training loop has reached, for whoever watches.

Only the loop that trains writes here. A thread of its own would go on saying "alive" after the
loop has died, and that is the one lie this file must never tell.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dflash_trainer.attempt import Attempt
from dflash_trainer.files import write_json

SCHEMA = 1
PHASES = ("loading", "compiling", "warmup", "training", "evaluating", "saving", "finishing", "done")


@dataclass(frozen=True, slots=True)
class Worker:
    """One target or drafter, a thread or a process; step is the last one it has finished."""

    id: str
    device: str
    step: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint; times in seconds since the epoch on this host, done None while it is being written."""

    step: int
    begun: float
    done: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    phase: str = "loading"
    phase_limit_s: float | None = None
    step: int = 0
    steps_total: int = 0
    workers: tuple[Worker, ...] = ()
    tokens: int = 0
    tokens_per_s: float | None = None
    loss: float | None = None
    tau: float | None = None
    checkpoint: Saved | None = None


@dataclass(slots=True)
class Reporter:
    """Holds the latest progress and writes it: at once for a change, else at most once a second."""

    attempt: Attempt
    limits_s: Mapping[str, float] = field(default_factory=dict)
    now: Progress = field(default_factory=Progress)
    _written_at: float = -math.inf
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def phase(self, name: str) -> None:
        """Enter a phase; its limit is in the file, so that a watcher needs no table of its own."""
        assert name in PHASES
        self.update(phase=name, phase_limit_s=self.limits_s.get(name))

    def update(self, **changes: object) -> None:
        with self._lock:
            self.now = replace(self.now, **changes)  # type: ignore[arg-type]  # names are checked by replace
            self._write()

    def tick(self, **changes: object) -> None:
        """Note a small movement inside a step or a long phase; written when a second has passed."""
        with self._lock:
            self.now = replace(self.now, **changes)  # type: ignore[arg-type]  # names are checked by replace
            if time.monotonic() - self._written_at >= 1.0:
                self._write()

    def _write(self) -> None:
        write_json(self.attempt.folder / "progress.json", as_json(self.now, self.attempt), durable=False)
        self._written_at = time.monotonic()


def as_json(progress: Progress, attempt: Attempt) -> dict[str, object]:
    """The file's keys. Numbers that are not finite are null: JSON has no NaN, and null is 'unknown'."""
    saved = progress.checkpoint
    return {
        "schema": SCHEMA,
        "attempt": attempt.number,
        "phase": progress.phase,
        "phase_limit_s": progress.phase_limit_s,
        "step": progress.step,
        "steps_total": progress.steps_total,
        "workers": [{"id": w.id, "device": w.device, "step": w.step, "alive": w.alive} for w in progress.workers],
        "tokens": progress.tokens,
        "tokens_per_s": _finite(progress.tokens_per_s),
        "loss": _finite(progress.loss),
        "tau": _finite(progress.tau),
        "checkpoint": None if saved is None else {"step": saved.step, "begun": saved.begun, "done": saved.done},
    }


def write_done(attempt: Attempt, result: Mapping[str, object]) -> Path:
    """The completion marker. It carries the attempt's token: exit code 0 alone proves nothing."""
    path = attempt.folder / "done.json"
    write_json(path, {"schema": SCHEMA, "run": attempt.token, "attempt": attempt.number, **result}, durable=True)
    return path


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
