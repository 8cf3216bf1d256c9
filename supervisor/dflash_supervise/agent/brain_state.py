"""brain.json: the core's memory between two agents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Optional

from dflash_supervise.agent.files import read_json, write_json
from dflash_supervise.core.memory import Memory
from dflash_supervise.wire import from_json, to_json

SCHEMA = 1


@dataclass(frozen=True)
class Loaded:
    """What an earlier agent left. ``lost``: there was a memory, and it cannot be read."""

    memory: Memory
    lost: Optional[str] = None


def load(run_dir: str) -> Loaded:
    """The memory as it was saved; an empty one when there is none.

    Raises:
        OSError: the workspace does not answer properly.
    """
    path = os.path.join(run_dir, "brain.json")
    data = read_json(path)
    if data is None:
        lost = "brain.json is there and holds no JSON object" if os.path.lexists(path) else None
        return Loaded(Memory(), lost)
    try:
        return Loaded(from_json(Memory, data["memory"]))
    except (KeyError, ValueError) as error:
        return Loaded(Memory(), f"brain.json cannot be read: {error}")


def save(run_dir: str, memory: Memory, durable: bool) -> None:
    """Replace the saved memory. ``durable``: on disk when this returns, as before an action.

    Raises:
        OSError
    """
    write_json(os.path.join(run_dir, "brain.json"), {"schema": SCHEMA, "memory": to_json(memory)}, durable=durable)
