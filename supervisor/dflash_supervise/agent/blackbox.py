"""The black box: what is kept of an attempt before the first signal of any stop.

Every collector runs in its own thread and has the same time limit, so neither a stuck workspace nor a trainer that does
not answer delays a stop for longer. No environment and no command line of anybody goes in; log text is redacted.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, Optional, Tuple, Union

from dflash_supervise.agent.files import write_atomic
from dflash_supervise.agent.stacks import Sampler
from dflash_supervise.core.facts import GpusReading, Missing, ProcessesReading

TAIL_BYTES = 64 << 10
LIMIT_S = 5.0
SECRETS = (
    re.compile(
        r"(?i)((?:token|secret|passw\w*|api[-_]?key|access[-_]?key|credentials?)[\"']?\s*[=:]\s*)[\"']?[^\s\"',;]+"
    ),
    re.compile(r"(?i)(bearer\s+)[\w.~+/=-]{8,}"),
    re.compile(r"(://[^\s/:@]+:)[^\s/@]+(?=@)"),
    re.compile(r"()\b(?:hf_|sk-|ghp_|github_pat_|glpat-|xox[abps]-|AKIA)[\w-]{10,}"),
)


@dataclass(frozen=True)
class BoxInputs:
    """What the agent already holds, and where the rest lies."""

    reason: Dict[str, Any]  # the action: attempt, because, incident, verdict, cause
    processes: Union[ProcessesReading, Missing]
    gpus: Union[GpusReading, Missing]
    log_path: str
    observations: Tuple[str, ...] = ()  # the last ten minutes, one JSON line each
    sampler: Optional[Sampler] = None  # None: the main process is no Python trainer of ours


class Sealing:
    """One box being filled. ``start`` may be called at every tick; ``sealed`` is true when nothing more will come."""

    def __init__(self, box_dir: str, inputs: BoxInputs, *, limit_s: float = LIMIT_S) -> None:
        self._dir = box_dir
        self._inputs = inputs
        self._limit_s = limit_s
        self._began_s: Optional[float] = None
        self._done = threading.Event()

    def start(self, now_s: float) -> None:
        if self._began_s is None:
            self._began_s = now_s
            threading.Thread(target=self._fill, args=(now_s,), name="blackbox", daemon=True).start()

    def sealed(self, now_s: float) -> bool:
        """True when all is written, or when the limit is over and a stop may wait no longer."""
        if self._began_s is None:
            return False
        return self._done.is_set() or now_s - self._began_s >= self._limit_s

    def _fill(self, now_s: float) -> None:
        if os.path.exists(os.path.join(self._dir, "sealed.json")):
            self._done.set()  # an earlier agent sealed it when it saw more; it was replaced during the stop
            return
        inputs = self._inputs
        collectors: Dict[str, Callable[[], str]] = {
            "reason.json": lambda: _json(inputs.reason),
            "processes.json": lambda: _json(_plain(inputs.processes)),
            "gpus.json": lambda: _json(_plain(inputs.gpus)),
            "observations.jsonl": lambda: "".join(line.rstrip("\n") + "\n" for line in inputs.observations),
            "log_tail.txt": lambda: redact(_tail(inputs.log_path)),
            "stacks.txt": lambda: redact(_stacks(inputs.sampler, now_s)),
        }
        outcomes = dict.fromkeys(collectors, f"not finished within {self._limit_s:.0f} s")
        try:
            # Only the last folder: a run directory that somebody deleted does not come back by itself.
            if not os.path.isdir(self._dir):
                os.mkdir(self._dir, 0o700)
        except OSError as error:
            outcomes = dict.fromkeys(collectors, str(error))
            collectors = {}
        threads = [
            threading.Thread(target=_collect, args=(self._dir, name, collector, outcomes), name=name, daemon=True)
            for name, collector in collectors.items()
        ]
        until = time.monotonic() + self._limit_s
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        try:
            told = _json({"at_s": now_s, "files": dict(outcomes)})
            write_atomic(os.path.join(self._dir, "sealed.json"), told.encode("utf-8"))
        except OSError:
            pass  # the workspace takes nothing: the stop goes on without its evidence
        self._done.set()


def _collect(folder: str, name: str, collector: Callable[[], str], outcomes: Dict[str, str]) -> None:
    try:
        write_atomic(os.path.join(folder, name), collector().encode("utf-8", "backslashreplace"), durable=False)
        outcomes[name] = "ok"
    except (OSError, ValueError, TypeError) as error:
        outcomes[name] = str(error)


def redact(text: str) -> str:
    """The text without what looks like a secret; the name before it stays."""
    for pattern in SECRETS:
        text = pattern.sub(r"\1***", text)
    return text


def _plain(reading: Union[ProcessesReading, GpusReading, Missing]) -> Dict[str, Any]:
    return {"missing": reading.reason} if isinstance(reading, Missing) else asdict(reading)


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def _tail(path: str) -> str:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL_BYTES))
        return file.read(TAIL_BYTES).decode("utf-8", "replace")


def _stacks(sampler: Optional[Sampler], now_s: float) -> str:
    if sampler is None:
        return "no stacks: not a Python trainer that answers SIGUSR1\n"
    if sampler.take(now_s):
        return sampler.newest_text
    reading = sampler.reading()
    return sampler.newest_text or (reading.reason + "\n" if isinstance(reading, Missing) else "")
