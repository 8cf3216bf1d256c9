"""Charts as numbers: where the lines, ticks, marks and coloured stretches of an SVG go. Pure.

Drawn on the server, so a page without JavaScript shows them too. Times are Unix seconds; a missing value or a silence
breaks the line instead of bridging it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dflash_supervise.web.words import clock_text, decimal, rate

GAP_FACTOR = 6.0  # a pause this many times the usual distance between points breaks a line
MAX_POINTS = 400
LABEL_ROWS = 3
LABEL_CHAR_PX = 6.4  # of the 11 px labels, rather wide


@dataclass(frozen=True)
class Tick:
    at: float  # pixels
    text: str


@dataclass(frozen=True)
class Mark:
    """A vertical line: an attempt that began, an incident that opened."""

    at_s: float
    text: str
    tone: str


@dataclass(frozen=True)
class PlacedMark:
    at: float
    y: float  # of the label
    text: str  # empty where it would cover its neighbours; the line stays
    tone: str
    flip: bool  # near the right edge the label goes to the left of its line


@dataclass(frozen=True)
class Chart:
    width: int
    height: int
    left: int
    bottom: int
    paths: tuple[str, ...]
    dots: tuple[tuple[float, float], ...]  # points without neighbours, which no line would show
    y_ticks: tuple[Tick, ...]
    x_ticks: tuple[Tick, ...]
    marks: tuple[PlacedMark, ...]
    last: tuple[float, float] | None
    latest: str
    summary: str  # for who cannot see the picture
    points: str  # as JSON, to be drawn anew: {data: [[seconds], [values]], marks: [[s, text, tone]]}


@dataclass(frozen=True)
class Stretch:
    """Part of a lane in which a GPU did one kind of work."""

    x: float
    width: float
    kind: str
    title: str


@dataclass(frozen=True)
class Lane:
    label: str
    stretches: tuple[Stretch, ...]
    summary: str


@dataclass(frozen=True)
class Lanes:
    width: int
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Window:
    """The span of time that a page's charts share."""

    start_s: float
    end_s: float

    def place(self, at_s: float, left: float, width: float) -> float:
        span = max(self.end_s - self.start_s, 1e-9)
        return round(left + (at_s - self.start_s) / span * width, 1)


def line_chart(
    times: Sequence[float],
    values: Sequence[float | None],
    window: Window,
    *,
    what: str,
    marks: Sequence[Mark] = (),
    width: int = 640,
    height: int = 190,
    from_zero: bool = False,
) -> Chart | None:
    """A line over the window, or None when there is nothing to draw."""
    points = _thin(
        [
            (at, value)
            for at, value in zip(times, values, strict=False)
            if window.start_s <= at <= window.end_s and (value is None or math.isfinite(value))
        ]
    )
    known = [value for _, value in points if value is not None]
    if not known:
        return None
    left, top, bottom = 48, 14, height - 24
    ticks = _nice_ticks(0.0 if from_zero else min(known), max(known))
    low, high = ticks[0], ticks[-1]

    def x(at: float) -> float:
        return window.place(at, left, width - left - 8)

    def y(value: float) -> float:
        return round(bottom - (value - low) / (high - low) * (bottom - top), 1)

    runs = _unbroken(points)
    last_at, last_value = next((at, v) for at, v in reversed(points) if v is not None)
    write = rate if high >= 1000 else decimal
    return Chart(
        width=width,
        height=height,
        left=left,
        bottom=bottom,
        paths=tuple("M" + " L".join(f"{x(at)},{y(v)}" for at, v in run) for run in runs if len(run) > 1),
        dots=tuple((x(run[0][0]), y(run[0][1])) for run in runs if len(run) == 1),
        y_ticks=tuple(Tick(y(tick), _tick_text(tick, ticks[1] - ticks[0])) for tick in ticks),
        x_ticks=time_ticks(window, left, width - left - 8),
        marks=place_marks(marks, window, left, width - left - 8),
        last=(x(last_at), y(last_value)),
        latest=write(last_value),
        summary=f"{what}: {write(known[0])} at first, {write(last_value)} at last, "
        f"between {write(min(known))} and {write(max(known))}",
        points=_as_json(points, marks),
    )


def lane(
    label: str, times: Sequence[float], kinds: Sequence[str | None], window: Window, *, width: float, left: float = 0.0
) -> Lane:
    """What one GPU did over the window, equal neighbours joined; a silence stays empty."""
    pairs = [(at, kind or "unknown") for at, kind in zip(times, kinds, strict=False)]
    step = _usual_step([at for at, _ in pairs])
    out: list[tuple[float, float, str]] = []
    for index, (at, kind) in enumerate(pairs):
        following = pairs[index + 1][0] if index + 1 < len(pairs) else math.inf
        until = min(following, at + step * GAP_FACTOR, window.end_s)
        at = max(at, window.start_s)
        if until <= at:
            continue
        if out and out[-1][2] == kind and at - out[-1][1] < 1e-6:
            out[-1] = (out[-1][0], until, kind)
        else:
            out.append((at, until, kind))
    total = {kind: sum(b - a for a, b, k in out if k == kind) for kind in {k for _, _, k in out}}
    shares = ", ".join(f"{kind} {_duration(s)}" for kind, s in sorted(total.items(), key=lambda kv: -kv[1]))
    return Lane(
        label=label,
        stretches=tuple(
            Stretch(
                x=window.place(a, left, width),
                width=max(0.6, round(window.place(b, left, width) - window.place(a, left, width), 1)),
                kind=kind,
                title=f"{label} {kind} {clock_text(a)} to {clock_text(b)} UTC",
            )
            for a, b, kind in out
        ),
        summary=f"{label}: {shares or 'no readings'}",
    )


def time_ticks(window: Window, left: float, width: float) -> tuple[Tick, ...]:
    """Round clock times, as many as have room."""
    span = window.end_s - window.start_s
    most = max(2.0, width / 90)
    steps = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
    step = next((step for step in steps if span / step <= most), 172800)
    first = math.ceil(window.start_s / step) * step
    seconds = step < 60
    ticks = []
    for index in range(int(most) + 2):
        at = first + index * step
        if at > window.end_s:
            break
        text = clock_text(at)
        ticks.append(Tick(window.place(at, left, width), text if seconds else text[:5]))
    return tuple(ticks)


def place_marks(marks: Sequence[Mark], window: Window, left: float, width: float) -> tuple[PlacedMark, ...]:
    placed: list[PlacedMark] = []
    ends = [-1.0] * LABEL_ROWS
    for mark in sorted(marks, key=lambda mark: mark.at_s):
        if window.start_s <= mark.at_s <= window.end_s:
            at = window.place(mark.at_s, left, width)
            flip = at > left + width * 0.8
            wide = 8.0 + LABEL_CHAR_PX * len(mark.text)
            row = next((n for n, end in enumerate(ends) if end < (at - wide if flip else at)), None)
            if row is not None:
                ends[row] = at if flip else at + wide
            text = mark.text if row is not None else ""
            placed.append(PlacedMark(at, 20.0 + 12.0 * (row or 0), text, mark.tone, flip))
    return tuple(placed)


def _as_json(points: list[tuple[float, float | None]], marks: Sequence[Mark]) -> str:
    return json.dumps(
        {
            "data": [[at for at, _ in points], [value for _, value in points]],
            "marks": [[mark.at_s, mark.text, mark.tone] for mark in marks],
        },
        separators=(",", ":"),
    )


def _thin(points: list[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """At most ``MAX_POINTS``; of each bucket the smallest and the largest stay, so a spike survives."""
    if len(points) <= MAX_POINTS:
        return points
    size = math.ceil(len(points) / (MAX_POINTS / 2))
    out: list[tuple[float, float | None]] = []
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        known = [p for p in bucket if p[1] is not None]
        keep = {min(known, key=lambda p: p[1] or 0.0), max(known, key=lambda p: p[1] or 0.0)} if known else {bucket[0]}
        out += sorted(keep, key=lambda p: p[0])
    return out


def _unbroken(points: list[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    limit = _usual_step([at for at, _ in points]) * GAP_FACTOR
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None or (runs[-1] and at - runs[-1][-1][0] > limit):
            runs.append([])
        if value is not None:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _usual_step(times: Sequence[float]) -> float:
    steps = sorted(b - a for a, b in pairwise(times) if b > a)
    return steps[len(steps) // 2] if steps else 1.0


def _nice_ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers that hold both ends; a constant gets some air around it."""
    if high - low < max(abs(high), 1e-6) * 1e-3:
        air = max(abs(high) * 0.1, 1e-3)
        low, high = (low - air if low else 0.0), high + air
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw - 1e-12)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * k for k in range(first, last + 1)]


def _tick_text(value: float, step: float) -> str:
    if step >= 1:
        return rate(value)
    return f"{value:.{max(0, -math.floor(math.log10(step) + 1e-9)) + (1 if _odd(step) else 0)}f}"


def _odd(step: float) -> bool:
    """2.5 and its powers of ten need one digit more."""
    lead = step / 10.0 ** math.floor(math.log10(step) + 1e-9)
    return abs(lead - 2.5) < 1e-6


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
