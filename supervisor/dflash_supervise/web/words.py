"""Numbers, ages and states in words. Unknown is shown as a dash, never as 0."""

from __future__ import annotations

import math
from datetime import UTC, datetime

DASH = "\u2013"

# The tone decides icon, colour and favicon of a state; the word stands beside it always.
TONES = {
    "running": "ok",
    "completed": "done",
    "starting": "busy",
    "stopped": "off",
    "host_unreachable": "unknown",
}
_WARN_WHEN_SUSPECTED = "warn"


def tone(verdict: str | None, *, suspected: bool = False) -> str:
    """ok, done, busy, off, unknown, warn (suspected) or bad."""
    if verdict is None:
        return "unknown"
    known = TONES.get(verdict)
    if known is not None:
        return known
    return _WARN_WHEN_SUSPECTED if suspected else "bad"


def spoken(slug: str | None) -> str:
    """A slug as a person says it: ``partial_stall`` -> ``partial stall``."""
    return (slug or "unknown").replace("_", " ")


def age(seconds: float | None) -> str:
    """``3 s``, ``4 min``, ``2 h 10 min``, ``3 d 4 h``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    whole = max(0, int(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def count(value: float | None) -> str:
    """``12,400``."""
    return DASH if value is None or not math.isfinite(value) else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Three figures and a letter: ``48.2k``, ``913``."""
    if value is None or not math.isfinite(value):
        return DASH
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / {'G': 1e9, 'M': 1e6, 'k': 1e3}[letter]:.3g}{letter}"
    return f"{value:,.0f}"


def decimal(value: float | None, digits: int = 3) -> str:
    if value is None:
        return DASH
    return f"{value:.{digits}f}" if math.isfinite(value) else str(value)


def gib(value: float | None) -> str:
    return DASH if value is None else f"{value / 1024**3:.1f}"


def size(value: float | None) -> str:
    """Bytes as ``94 B``, ``12.3 kB``, ``1.8 MB``."""
    if value is None:
        return DASH
    if value < 1000:
        return f"{value:.0f} B"
    for limit, unit in ((1e6, "kB"), (1e9, "MB"), (1e12, "GB")):
        if value < limit:
            return f"{value / limit * 1000:.1f} {unit}"
    return f"{value / 1e12:.1f} TB"


def quantity(value: str | float | None, unit: str) -> str:
    """An evidence value with its unit, as it was read."""
    if value is None:
        return "unknown"
    text = f"{value:,.4g}" if isinstance(value, float) else f"{value}"
    return f"{text} {unit}".rstrip()


def unix(stamp: object) -> float | None:
    """RFC 3339 or Unix seconds as Unix seconds; None for anything else."""
    if isinstance(stamp, (int, float)) and not isinstance(stamp, bool):
        return float(stamp)
    if not isinstance(stamp, str):
        return None
    try:
        parsed = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def clock_text(at: float | None, *, date: bool = False) -> str:
    """``12:03:11`` or ``2026-05-04 12:03:11``, always UTC."""
    if at is None:
        return DASH
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
