"""Recorded cases: what was seen, kept apart from the answer, which the code under test never reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_supervise.core.context import read_signal
from dflash_supervise.core.diagnose import Diagnosis, diagnose

DATA = Path(__file__).parents[1] / "data"
INPUT = ("log_kind", "exit_code", "signal", "gpu", "observed")
HEALTHY = frozenset({"starting", "running", "completed"})
CHUNK_BYTES = 4096


@dataclass(frozen=True)
class Case:
    """One case: its log, its input fields and its answer."""

    name: str
    log: bytes
    seen: dict[str, Any]
    answer: dict[str, Any]

    @property
    def healthy(self) -> bool:
        return self.answer["expected_verdict"] in HEALTHY

    @property
    def names_a_line(self) -> bool:
        """Whether the key line is scored: it is one of the log's, and something is worth naming."""
        return self.answer["key_line_in"] == "log" and not (self.healthy and self.answer["expected_cause"] == "none")


@dataclass(frozen=True)
class Score:
    """What was right about one diagnosis."""

    case: Case
    found: Diagnosis

    @property
    def verdict(self) -> bool:
        return self.found.verdict in (self.case.answer["expected_verdict"], *self.case.answer["also_acceptable"])

    @property
    def cause(self) -> bool:
        return self.found.cause == self.case.answer["expected_cause"]

    @property
    def action(self) -> bool:
        return self.found.action == self.case.answer["action"]

    @property
    def key_line(self) -> bool:
        return not self.case.names_a_line or self.case.answer["key_line"] in self.found.key_line

    @property
    def false_alarm(self) -> bool:
        return self.case.healthy and self.found.verdict not in HEALTHY


def cases(folder: str) -> list[Case]:
    """The cases of one folder of tests/data."""
    found = []
    for path in sorted((DATA / folder).glob("*.json")):
        fields = json.loads(path.read_text())
        seen = {name: fields[name] for name in INPUT}
        answer = {name: value for name, value in fields.items() if name not in INPUT}
        found.append(Case(path.stem, path.with_suffix(".log").read_bytes(), seen, answer))
    return found


def score(case: Case) -> Score:
    """Judge one case by its input alone."""
    chunks = (case.log[at : at + CHUNK_BYTES] for at in range(0, len(case.log), CHUNK_BYTES))
    seen = {**case.seen, "signal": read_signal(case.seen["signal"])}
    return Score(case, diagnose(chunks, **seen))


def accuracy(scores: list[Score]) -> dict[str, float]:
    """Shares that are right, by what was asked."""
    lines = [one for one in scores if one.case.names_a_line]
    return {
        "verdict": sum(one.verdict for one in scores) / len(scores),
        "cause": sum(one.cause for one in scores) / len(scores),
        "key line": sum(one.key_line for one in lines) / len(lines),
        "action": sum(one.action for one in scores) / len(scores),
    }
