"""Numbers for people: ages, durations, counts, sizes. None is always shown as unknown, never as 0."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Any

UNKNOWN = "-"
_SAME_DAY_S = 12 * 3600.0  # a time of day further ahead needs its date


def duration(seconds: float | None) -> str:
    """Two units at most: ``0.4 s``, ``12 s``, ``3m 20s``, ``2h 05m``, ``3d 4h``."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0:
        return "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds % 1 >= 0.05 else f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def short_duration(seconds: float | None) -> str:
    """One unit, for a narrow column: ``12s``, ``3m``, ``2h``, ``3d``."""
    if seconds is None:
        return UNKNOWN
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def number(value: float | None, digits: int = 3) -> str:
    """``12,345`` from a thousand on, else so many significant digits; integers as they are."""
    if value is None:
        return UNKNOWN
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def bytes_(value: float | None) -> str:
    """Binary units: ``0 B``, ``512 MiB``, ``1.5 GiB``."""
    if value is None:
        return UNKNOWN
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit in ("B", "KiB") or size >= 100 else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def measured(value: Any, unit: str) -> str:
    """An evidence value with its unit."""
    if value is None:
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{value} {unit}".rstrip()
    if unit == "s":
        return duration(float(value))
    if unit in ("B", "bytes"):
        return bytes_(value)
    return f"{number(value)} {unit}".rstrip()


def step_of(step: int | None, total: int | None) -> str:
    if step is None:
        return UNKNOWN
    return f"{step}/{total}" if total else str(step)


def cut(text: str, width: int) -> str:
    """The text in at most so many columns; a cut is visible."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "~"


def clock(at: Any) -> str:
    """An RFC 3339 time as this machine's local ``11-30 05:08:31``; what is no time is shown as it came."""
    try:
        return datetime.fromisoformat(str(at).replace("Z", "+00:00")).astimezone().strftime("%m-%d %H:%M:%S")
    except ValueError:
        return str(at or "?")


def hold_line(run: Mapping[str, Any]) -> str:
    """``on hold until 14:05 (1h 12m left)``, by this machine's clock; empty for a run that is not held."""
    goal: Mapping[str, Any] = run.get("goal") or {}
    left_s, for_s = goal.get("hold_left_s"), goal.get("hold_for_s")
    if goal.get("want") != "hold" or run.get("final") or left_s == 0:
        return ""
    if left_s is not None:
        until = clock(goal.get("hold_until"))  # 11-30 14:05:31
        return f"on hold until {until[-8:-3] if left_s < _SAME_DAY_S else until[:-3]} ({duration(left_s)} left)"
    length = "until released" if for_s is None else f"for {duration(for_s)}"
    if not goal.get("acknowledged"):
        return f"on hold {length}, once the host has taken it"
    return f"on hold {length}" + ("" if for_s is None else "; when that began is not known")


def command(*words: str) -> str:
    """A line to copy into a shell."""
    return shlex.join(("dflash-supervise", *words))
