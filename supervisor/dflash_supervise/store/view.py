"""What is kept of the last observation of a run (its current view), and of each one for the charts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

Doc = dict[str, Any]

MARK_EVERY_S = 60.0  # the step rate is taken over the last one to two of these


def current(record: Mapping[str, Any], before: Mapping[str, Any] | None) -> Doc:
    """The view after an observation record.

    ``before`` carries what the rate of steps is measured from, and the run's last complete checkpoint: one that is
    being written, or an attempt that has not written any yet, does not undo it.
    """
    before = before or {}
    obs = record.get("obs") or {}
    ended = _ended(obs)
    progress, log = _reading(obs, "progress"), _reading(obs, "log")
    attempt = (obs.get("attempt") or {}).get("number")
    step = _first(progress.get("step"), log.get("step"))
    view: Doc = {
        "t_s": record["t_s"],
        "attempt": attempt,
        "phase": progress.get("phase"),
        "step": step,
        "steps_total": progress.get("steps_total"),
        "loss": _first(progress.get("loss"), log.get("loss")),
        "tokens_per_s": None if ended else _first(progress.get("tokens_per_s"), log.get("tokens_per_s")),
        "tau": progress.get("tau"),
        "checkpoint_step": _first(_saved(progress), before.get("checkpoint_step")),
        "workers": progress.get("workers", []),
        "log_bytes": log.get("size_bytes"),
        "last_line": log.get("last_line", ""),
        "main_alive": _reading(obs, "processes").get("main_alive"),
        "ended": ended,
        "gpus": [_gpu(gpu, record.get("gpu_class") or {}) for gpu in _reading(obs, "gpus").get("gpus", [])],
        "missing": {key: obs[key].get("reason", "") for key in _READINGS if _is_missing(obs.get(key))},
    }
    view["marks"] = _marks(view, before)
    return view


def of_attempt(view: Mapping[str, Any], attempt: int | None, *, final: bool) -> Doc:
    """The numbers of a run's present attempt.

    What an earlier attempt did is old news when the next one has begun: its numbers are unknown then, but for the
    checkpoint, which is the run's. An attempt that has ended keeps the step it came to; it has no speed and no rest.
    """
    seen = view.get("attempt")
    if seen is not None and seen < (attempt or 0):
        view = {"checkpoint_step": view.get("checkpoint_step")}
    ended = True if final else view.get("ended")
    return {
        **{key: view.get(key) for key in ("step", "steps_total", "loss", "tau", "checkpoint_step")},
        "tokens_per_s": None if ended else view.get("tokens_per_s"),
        "eta_s": None if ended else eta_s(view),
        "attempt_ended": ended,
        "workers": view.get("workers", []),
        "last_line": view.get("last_line", ""),
    }


def sample(view: Mapping[str, Any]) -> Doc:
    """The part of a view that the charts draw."""
    gpus = {gpu["uuid"]: [gpu["util_pct"], gpu["power_w"], gpu["class"]] for gpu in view["gpus"]}
    return {"step": view["step"], "loss": view["loss"], "tps": view["tokens_per_s"], "gpus": gpus}


def eta_s(view: Mapping[str, Any]) -> float | None:
    """Seconds to the last step at the rate of the last minutes; None before there is a rate."""
    marks, step, total = view.get("marks") or [], view.get("step"), view.get("steps_total")
    if step is None or total is None or not marks:
        return None
    since_t, since_step = marks[0]
    moved, took = step - since_step, view["t_s"] - since_t
    return (total - step) * took / moved if moved > 0 and took > 0 else None


def unix(at: str) -> float:
    """Seconds since 1970 of a record's ``at`` (RFC 3339, UTC).

    Raises:
        ValueError: no such time.
    """
    return dt.datetime.fromisoformat(at).timestamp()


_YEAR_9999 = 253_370_764_800.0


def rfc3339(at: float | None) -> str | None:
    """A moment as text; None for none, and for one that no calendar has."""
    if at is None or not 0 <= at < _YEAR_9999:
        return None
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ended(obs: Mapping[str, Any]) -> bool | None:
    """Whether the attempt's main process is gone; None while nobody can say."""
    if obs.get("exit") is not None:
        return True
    alive = _reading(obs, "processes").get("main_alive")
    return None if alive is None else not alive


def _saved(progress: Mapping[str, Any]) -> Any:
    return progress.get("checkpoint_step") if progress.get("checkpoint_done") else None


_READINGS = ("processes", "progress", "log", "gpus", "host")


def _is_missing(reading: object) -> bool:
    return isinstance(reading, dict) and reading.get("type") == "Missing"


def _reading(obs: Mapping[str, Any], key: str) -> Doc:
    found = obs.get(key)
    return found if isinstance(found, dict) and not _is_missing(found) else {}


def _gpu(gpu: Mapping[str, Any], classes: Mapping[str, str]) -> Doc:
    uuid = gpu.get("uuid", "")
    shown = ("util_pct", "power_w", "mem_used_bytes", "mem_total_bytes", "temp_c", "error")
    return {
        "index": gpu.get("index"),
        "uuid": uuid,
        "name": gpu.get("name", ""),
        "class": classes.get(uuid, "unknown"),
        **{key: gpu.get(key) for key in shown},
    }


def _marks(view: Mapping[str, Any], before: Mapping[str, Any]) -> list[list[float]]:
    step, now = view["step"], view["t_s"]
    if step is None:
        return []
    marks: list[list[float]] = [list(mark) for mark in before.get("marks") or []]
    fresh = before.get("attempt") != view["attempt"] or (marks and (marks[-1][1] > step or marks[-1][0] > now))
    if not marks or fresh:
        return [[now, step]]
    if now - marks[-1][0] >= MARK_EVERY_S:
        marks.append([now, step])
    return marks[-2:]


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
