"""Signs and colours: a state is never shown by colour alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dflash_supervise.cli.say import Style

# Verdict -> sign, colours.
_VERDICTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "starting": ("\u25cc", ("cyan",)),
    "running": ("\u25cf", ("green",)),
    "completed": ("\u2714", ("green",)),
    "no_log": ("\u2716", ("red",)),
    "early_crash": ("\u2716", ("red",)),
    "crash": ("\u2716", ("red",)),
    "hang": ("\u25b2", ("yellow",)),
    "partial_stall": ("\u25b2", ("yellow",)),
    "stale_process": ("\u25b2", ("yellow",)),
    "gpu_fault": ("\u2716", ("red",)),
    "host_unreachable": ("?", ("yellow",)),
    "ended_unclear": ("?", ("yellow",)),
    "stopped": ("\u25a0", ("dim",)),
}
HEALTHY = frozenset({"starting", "running", "completed"})
DEATHS = frozenset({"no_log", "early_crash", "crash", "ended_unclear", "stale_process"})

_STATUSES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "failing": ("\u2717", ("red",)),
    "pending": ("~", ("yellow",)),
    "unknown": ("?", ("yellow",)),
    "ok": ("\u2713", ("green",)),
}

# Work class of a GPU -> its cell in a strip. Height is work; what only looks busy has its own pattern.
_CELLS: Mapping[str, str] = {
    "working": "\u2588",
    "starved": "\u2585",
    "spinning": "\u2592",
    "idle": "\u2581",
    "off": "\u00b7",
}
STRIP_CELLS = 8


def verdict_sign(verdict: str | None, style: Style) -> str:
    sign, colours = _VERDICTS.get(verdict or "", ("-", ()))
    return style.paint(sign, *colours)


def verdict_colours(verdict: str | None) -> tuple[str, ...]:
    return _VERDICTS.get(verdict or "", ("-", ()))[1]


def verdict_word(run: Mapping[str, Any]) -> str:
    """The verdict as a word; one that is not confirmed yet carries a question mark."""
    verdict = str(run.get("verdict") or "unknown")
    return verdict + "?" if run.get("suspected") else verdict


def status_sign(status: str, style: Style) -> str:
    sign, colours = _STATUSES.get(status, ("?", ()))
    return style.paint(sign, *colours)


def gpu_strip(gpus: Sequence[Mapping[str, Any]] | None) -> str:
    """One cell a GPU, eight at most; ``?`` for a class that is not known, ``-`` where no GPU was read."""
    if not gpus:
        return "-"
    cells = "".join(_CELLS.get(str(gpu.get("class") or ""), "?") for gpu in gpus[:STRIP_CELLS])
    more = len(gpus) - STRIP_CELLS
    return f"{cells}+{more}" if more > 0 else cells
