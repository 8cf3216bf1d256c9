"""What was seen of the run so far, and what is new since the last look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dflash_supervise.cli import clean
from dflash_supervise.demo import story as stories

if TYPE_CHECKING:
    from dflash_supervise.cli.api import Api

_LOG_BYTES = 1 << 18


@dataclass
class Watched:
    """What was seen so far: grows with every look."""

    lines: list[stories.LogLine] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    row: int = 0
    attempt: int = 1
    offset: int = 0
    partial: clean.Lines = field(default_factory=clean.Lines)
    told: set[tuple[object, ...]] = field(default_factory=set)  # what is said once
    verdict: str | None = None

    def first(self, *what: object) -> bool:
        """True the first time."""
        before = len(self.told)
        self.told.add(what)
        return len(self.told) > before


def new_lines(api: Api, run_id: str, newest: int, watched: Watched) -> Iterator[stories.LogLine]:
    """The trainer's lines since the last look, one attempt after the other."""
    while watched.attempt <= newest:
        part = api.get(f"/runs/{run_id}/log", attempt=watched.attempt, offset=watched.offset, limit=_LOG_BYTES)
        for text in watched.partial.feed(str(part.get("text") or "")):
            line = stories.read_line(clean.line(text), watched.attempt)
            if line is not None:
                yield line
        before, watched.offset = watched.offset, max(watched.offset, int(part.get("next") or 0))
        if before < watched.offset < int(part.get("size") or 0):
            continue
        if watched.attempt == newest:
            return
        watched.attempt, watched.offset, watched.partial = watched.attempt + 1, 0, clean.Lines()


def new_records(api: Api, run_id: str, watched: Watched) -> list[dict[str, Any]]:
    found = api.get(f"/runs/{run_id}/records", after=watched.row, kind="verdict", limit=500).get("records", [])
    if found:
        watched.row = max(int(record["row"]) for record in found)
    return [dict(clean.document(record)) for record in found]
