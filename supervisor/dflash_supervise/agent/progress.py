"""progress.json and done.json of an attempt, as the bundled trainer writes them."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Optional, Tuple, Union

from dflash_supervise.core.facts import LogReading, Missing, ProgressReading, WorkerFact

MAX_BYTES = 1 << 20
NOT_YET = "no progress file yet"


def read_progress(attempt_dir: str, attempt: int) -> Union[ProgressReading, Missing]:
    """The attempt's progress; Missing when the file is absent, torn, of another attempt or of no known shape."""
    try:
        data = read_json(os.path.join(attempt_dir, "progress.json"))
    except FileNotFoundError:
        return Missing(NOT_YET)
    except (OSError, ValueError) as error:
        return Missing(f"progress.json cannot be read: {error}")
    try:
        return parse_progress(data, attempt)
    except (KeyError, TypeError, ValueError) as error:
        return Missing(f"progress.json has an unknown shape: {error!r}")


def parse_progress(data: Dict[str, Any], attempt: int) -> Union[ProgressReading, Missing]:
    """The reading of a decoded progress.json.

    Raises:
        KeyError, TypeError, ValueError: a key is absent or has another type than the trainer writes.
    """
    if data["attempt"] != attempt:
        return Missing("progress.json is of attempt {}".format(data["attempt"]))
    saved = data.get("checkpoint")
    return ProgressReading(
        phase=str(data["phase"]),
        step=_integer(data.get("step")),
        steps_total=_integer(data.get("steps_total")) or None,
        phase_limit_s=_number(data.get("phase_limit_s")),
        workers=_workers(data.get("workers") or ()),
        tokens=_integer(data.get("tokens")),
        tokens_per_s=_number(data.get("tokens_per_s")),
        loss=_number(data.get("loss")),
        tau=_number(data.get("tau")),
        checkpoint_step=None if saved is None else _integer(saved.get("step")),
        checkpoint_begun_at=None if saved is None else _number(saved.get("begun")),
        checkpoint_done=None if saved is None else saved.get("done") is not None,
    )


def from_log(log: Union[LogReading, Missing]) -> Union[ProgressReading, Missing]:
    """A foreign trainer's progress: the step pattern of its log."""
    if isinstance(log, Missing):
        return Missing("no progress file, and " + log.reason)
    if log.step is None:
        return Missing("no progress file, and no step in the log")
    return ProgressReading(phase="training", step=log.step, tokens_per_s=log.tokens_per_s, loss=log.loss, source="log")


def is_done(attempt_dir: str, run_id: str, attempt: int) -> bool:
    """Whether the completion marker is there and carries this attempt's token."""
    try:
        data = read_json(os.path.join(attempt_dir, "done.json"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and data.get("run") == f"{run_id}:{attempt}"


def read_json(path: str) -> Any:
    """A small JSON file. Symbolic links are not followed.

    Raises:
        OSError: it cannot be read. ValueError: it is no JSON or larger than 1 MiB.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        data = os.read(fd, MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path} is larger than {MAX_BYTES} bytes")
    return json.loads(data.decode("utf-8"))


def _workers(rows: Any) -> Tuple[WorkerFact, ...]:
    return tuple(
        WorkerFact(
            id=str(row["id"]),
            device=str(row.get("device", "")),
            step=_integer(row.get("step")),
            alive=row.get("alive"),
        )
        for row in rows
    )


def _integer(value: Any) -> Optional[int]:
    return None if value is None else int(value)


def _number(value: Any) -> Optional[float]:
    return None if value is None else float(value)
