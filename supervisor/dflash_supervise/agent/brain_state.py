"""brain.json: the core's memory between two agents, in the run directory, else in the runtime folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from dflash_supervise.agent.files import read_json, write_json
from dflash_supervise.core.memory import Memory
from dflash_supervise.wire import from_json, to_json

SCHEMA = 1
NAME = "brain.json"


@dataclass(frozen=True)
class Loaded:
    """What an earlier agent left. ``lost``: there was a memory, and it cannot be read."""

    memory: Memory
    lost: Optional[str] = None


def load(run_dir: str, spare: Optional[str] = None) -> Loaded:
    """The memory as it was saved last, in either folder; an empty one when there is none.

    Raises:
        OSError: the workspace does not answer properly.
    """
    path = os.path.join(run_dir, NAME)
    home, kept = read_json(path), read_json(os.path.join(spare, NAME)) if spare is not None else None
    data = kept if kept is not None and (home is None or _after(kept) > _after(home)) else home
    if data is None:
        lost = "brain.json is there and holds no JSON object" if os.path.lexists(path) else None
        return Loaded(Memory(), lost)
    try:
        return Loaded(from_json(Memory, data["memory"]))
    except KeyError:
        return Loaded(Memory(), "brain.json cannot be read: it holds no memory")
    except ValueError as error:
        return Loaded(Memory(), f"brain.json cannot be read: {error}")


def save(
    run_dir: str, memory: Memory, durable: bool, *, spare: Optional[str] = None, after: Tuple[str, int] = ("", 0)
) -> None:
    """Replace the saved memory. ``durable``: on disk when this returns, as before an action.

    Args:
        spare: the folder that takes it when the run directory does not.
        after: (epoch, seq) of the newest record; it tells which of two copies is the newer.
    Raises:
        OSError: the run directory does not take it; the spare folder has it unless that refuses too.
    """
    data = {"schema": SCHEMA, "after": list(after), "memory": to_json(memory)}
    try:
        write_json(os.path.join(run_dir, NAME), data, durable=durable)
    except OSError:
        if spare is not None:
            write_json(os.path.join(spare, NAME), data, durable=durable)
        raise


def _after(data: Dict[str, Any]) -> Tuple[str, int]:
    try:
        epoch, seq = data["after"]
        return str(epoch), int(seq)
    except (KeyError, TypeError, ValueError, OverflowError):
        return "", 0
