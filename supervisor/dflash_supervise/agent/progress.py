"""progress.json and done.json of an attempt, as the bundled trainer writes them."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Union

from dflash_supervise.agent.files import decode_json
from dflash_supervise.agent.shapes import is_a
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
    except ValueError as error:
        return Missing(f"progress.json has an unknown shape: {error}")


def parse_progress(data: Any, attempt: int) -> Union[ProgressReading, Missing]:
    """The reading of a decoded progress.json.

    Raises:
        ValueError: a key is absent or has another type than the trainer writes; the text names it.
    """
    if not isinstance(data, dict):
        raise ValueError("expected an object")
    if data.get("attempt") != attempt:
        return Missing("progress.json is of attempt {}".format(data.get("attempt")))
    saved = _of(data, "checkpoint", dict)
    return ProgressReading(
        phase=_needed(data, "phase"),
        step=_of(data, "step", int),
        steps_total=_of(data, "steps_total", int) or None,
        phase_limit_s=_number(data, "phase_limit_s"),
        workers=tuple(_worker(row) for row in _of(data, "workers", list) or ()),
        tokens=_of(data, "tokens", int),
        tokens_per_s=_number(data, "tokens_per_s"),
        loss=_number(data, "loss"),
        tau=_number(data, "tau"),
        checkpoint_step=None if saved is None else _of(saved, "step", int),
        checkpoint_begun_at=None if saved is None else _number(saved, "begun"),
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
    return decode_json(data)


def _worker(row: Any) -> WorkerFact:
    if not isinstance(row, dict):
        raise ValueError(f"workers: {row!r:.80} is no object")
    return WorkerFact(
        id=_needed(row, "id"),
        device=_of(row, "device", str) or "",
        step=_of(row, "step", int),
        alive=_of(row, "alive", bool),
    )


def _needed(data: Dict[str, Any], key: str) -> str:
    text: Optional[str] = _of(data, key, str)
    if text is None:
        raise ValueError(f"{key} is absent")
    return text


def _number(data: Dict[str, Any], key: str) -> Optional[float]:
    value = _of(data, key, float)
    return None if value is None else float(value)


def _of(data: Dict[str, Any], key: str, kind: type) -> Any:
    value = data.get(key)
    if value is None or is_a(value, kind):
        return value
    raise ValueError(f"{key}: {value!r:.80} is not what the trainer writes")
