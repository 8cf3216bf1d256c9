"""What a run's record folder holds, read as the agent reads it."""

from __future__ import annotations

from typing import Any

from dflash_supervise.agent.record_reader import RecordReader


def read_all(folder: str) -> list[dict[str, Any]]:
    """Every record of a run, in order."""
    reader = RecordReader(folder)
    found: list[dict[str, Any]] = []
    while records := reader.read():
        found += records
    return found
