"""The values of one run's page, gathered from the store; each function serves one fragment."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup, escape

from dflash_supervise.web.api import tail_lines
from dflash_supervise.web.charts import Chart, Lanes, Mark, Window, lane, line_chart, time_ticks
from dflash_supervise.web.control import Doc, Reads
from dflash_supervise.web.ladder import STALE_NEWS_S, ladder
from dflash_supervise.web.sgr import line_html, lines_html, plain
from dflash_supervise.web.view import findings, incident_view, run_view
from dflash_supervise.web.words import age, count, spoken, tone, unix

CHART_SPAN_S = 1800.0
OLD_CHART_S = 60.0  # with older news the charts end at the last point instead of in an empty stretch
LOG_LINES = 200
SIZES = ((640, 190), (360, 170))  # pixels
LANE_WIDTHS = (1240, 360)


def now_values(store: Reads, doc: Doc, now: float) -> dict[str, Any]:
    """Verdict, ladder, findings and incidents."""
    why = store.why(str(doc["id"])) or {"run": doc, "verdict": None, "incidents": []}
    newest = store.records(str(doc["id"]), kinds=("observation",), limit=1, newest=True)
    record = newest[0] if newest else None
    # By our own clock on arrival: the host's clock is never held against ours.
    seen_at = unix(record.get("received_at")) if record else None
    age_s = doc.get("news_age_s") if seen_at is None else max(0.0, now - seen_at)
    run = run_view(doc, stale_s=STALE_NEWS_S)
    incidents = [incident_view(item) for item in why.get("incidents") or ()]
    shown = findings(why.get("verdict"), why["run"].get("verdict_age_s"))
    return {
        "now": now,
        "run": run,
        "rungs": ladder(doc, record, age_s),
        "speaking": [item for item in shown if item.status != "ok"],
        "satisfied": [item for item in shown if item.status == "ok"],
        "next": _next_text((why.get("verdict") or {}).get("next"), why["run"]),
        "notes": doc.get("notes") or [],
        "key_line": _key_line(why),
        "open_incidents": [item for item in incidents if item.state != "resolved"],
        "past_incidents": [item for item in incidents if item.state == "resolved"][:20],
        "cost": cost_text(doc),
        "tone": run.tone,
        "title": f"{run.state} \u00b7 {run.name}",
    }


def charts_values(store: Reads, doc: Doc, now: float) -> dict[str, Any]:
    """Loss, tokens per second and a lane a GPU over the last half hour, on one axis."""
    series = store.series(str(doc["id"]), since_s=CHART_SPAN_S)
    times = [at for at in (unix(item) for item in series.get("t") or ()) if at is not None]
    # Points, marks and the end of the axis are times of the host; only the age of its last word is ours.
    age_s = doc.get("news_age_s") or 0.0
    old = age_s > OLD_CHART_S or bool(doc.get("final"))
    end = (times[-1] if old else times[-1] + age_s) if times else now
    start = min(max(times[0], end - CHART_SPAN_S), end - 60.0) if times else end - CHART_SPAN_S
    window = Window(start, end)
    marks = _marks(store, doc)
    charts = [
        (name, _both_sizes(times, _column(series, key), window, marks, what=name.lower(), zero=zero), zero)
        for name, key, zero in (("Loss", "loss", False), ("Tokens per second", "tokens_per_s", True))
    ]
    return {
        "run": run_view(doc, stale_s=STALE_NEWS_S),
        "charts": charts,
        "lanes": _lanes(series, doc, times, window),
        "window": window,
        "until": window.end_s if old and times else None,
    }


def _both_sizes(
    times: list[float],
    values: list[float | None],
    window: Window,
    marks: list[Mark],
    *,
    what: str,
    zero: bool,
) -> list[Chart]:
    """Once for a desk and once for a phone: scaled down, the words of the first could not be read."""
    drawn = [
        line_chart(times, values, window, what=what, marks=marks, width=width, height=height, from_zero=zero)
        for width, height in SIZES
    ]
    return [chart for chart in drawn if chart is not None]


def _lanes(series: Doc, doc: Doc, times: list[float], window: Window) -> list[Lanes]:
    indices = {str(gpu.get("uuid")): gpu.get("index") for gpu in doc.get("gpus") or ()}
    gpus = sorted((series.get("gpus") or {}).items(), key=lambda item: _index(indices.get(item[0])))
    if not gpus:
        return []
    out = []
    for width in LANE_WIDTHS:
        room = float(width - 56)
        lanes = [
            lane(f"GPU {indices.get(uuid, '?')}", times, part.get("class") or (), window, width=room, left=48.0)
            for uuid, part in gpus
        ]
        out.append(Lanes(width, tuple(lanes), time_ticks(window, 48.0, room)))
    return out


def log_values(store: Reads, doc: Doc) -> dict[str, Any]:
    """The last lines of the newest attempt's log, safe to show."""
    found = tail_lines(store, str(doc["id"]), attempt=None, lines=LOG_LINES)
    key = str(_key_line(store.why(str(doc["id"])) or {}))
    raw = found["text"].replace("\r\n", "\n").rstrip("\n").split("\n") if found["text"] else []
    lines = [
        {"html": html, "ours": text.startswith("[dflash] "), "key": bool(key) and key in str(escape(plain(text)))}
        for text, html in zip(raw, lines_html("\n".join(raw) + "\n") if raw else [], strict=True)
    ]
    return {
        "run": run_view(doc, stale_s=STALE_NEWS_S),
        "lines": lines,
        "log_attempt": found.get("attempt"),
        "log_size": found.get("size") or 0,
        "log_limit": LOG_LINES,
    }


def goal_values(doc: Doc) -> dict[str, Any]:
    """What the forms that end an attempt say before anyone presses them."""
    return {"run": run_view(doc, stale_s=STALE_NEWS_S), "cost": cost_text(doc)}


def cost_text(doc: Doc) -> str:
    """What ending the attempt now would lose, in one sentence; what is not known is said to be unknown."""
    step, saved = doc.get("step"), doc.get("checkpoint_step")
    if doc.get("attempt_ended"):
        return "Its attempt has ended already, so no steps are lost by this."
    if step is None:
        return "It has not made a step that we know of, so no steps are lost."
    if saved is None:
        return f"It is at step {count(step)}; no complete checkpoint is known, so all of it may be lost."
    lost = max(0, int(step) - int(saved))
    return (
        f"It is at step {count(step)}, the last complete checkpoint is step {count(saved)}: "
        f"{count(lost)} step{'s' if lost != 1 else ''} may be lost."
    )


def _marks(store: Reads, doc: Doc) -> list[Mark]:
    marks = []
    kinds = ("attempt_start", "attempt_end")
    for record in store.records(str(doc["id"]), kinds=kinds, limit=40, newest=True):
        at = unix(record.get("at"))
        if at is None:
            continue
        if record.get("kind") == "attempt_start":
            marks.append(Mark(at, f"attempt {record.get('attempt')}", "busy"))
        else:
            marks.append(Mark(at, spoken(record.get("verdict")), tone(record.get("verdict"))))
    return marks


def _column(series: Doc, name: str) -> list[float | None]:
    return [value if value is None or math.isfinite(value) else None for value in series.get(name) or ()]


def _key_line(why: Doc) -> Markup:
    """The line of the log that names the cause of the present verdict, safe to show; empty when there is none."""
    candidates = [item.get("key_line") for item in (why.get("verdict") or {}).get("findings") or ()]
    attempt = (why.get("run") or {}).get("attempt")
    for item in why.get("incidents") or ():
        if item.get("state") != "resolved" and item.get("attempt") == attempt:  # an earlier one's line is no news
            candidates.append(item.get("key_line"))
    return line_html(next((str(item) for item in candidates if item), ""))


def _next_text(next_: Doc | None, doc: Doc) -> str:
    if not next_ or next_.get("what") in (None, "nothing"):
        return ""
    text = spoken(str(next_["what"])) + _due_text(next_.get("in_s"), doc)
    return f"{text}: {next_['why']}" if next_.get("why") else text


def _due_text(in_s: float | None, doc: Doc) -> str:
    """When it happens, counted from when it was told. Whether it has happened only the host knows."""
    told_s, news_s = doc.get("verdict_age_s"), doc.get("news_age_s")
    if in_s is None:
        return ""
    if told_s is None:
        return ", at a time that is not known"
    left_s = float(in_s) - float(told_s)
    if left_s >= 0.5:
        return f" in {age(round(left_s))}"
    if doc.get("reachable") is not False and news_s is not None and news_s <= STALE_NEWS_S:
        return " now"
    return f", due {age(round(-left_s))} ago; whether it has happened is not known"


def _index(value: object) -> int:
    return value if isinstance(value, int) else 999
