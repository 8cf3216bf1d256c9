"""What the pages show, as frozen values made from the store's documents. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dflash_supervise.core.goals import wishes
from dflash_supervise.core.verdicts import Evidence, Finding, Status
from dflash_supervise.web.control import Doc
from dflash_supervise.web.words import quantity, spoken, tone, unix
from dflash_supervise.wire import from_json

SEVERITY_TONES = {"page": "bad", "warn": "warn", "info": "busy"}
GPU_KINDS = ("working", "starved", "spinning", "idle", "off", "unknown")


@dataclass(frozen=True)
class Cell:
    """One GPU in the strip."""

    index: int
    kind: str
    title: str


@dataclass(frozen=True)
class RunView:
    id: str
    name: str
    host: str
    doc: Doc
    verdict: str
    cause: str
    sentence: str
    tone: str
    state: str  # the word beside the icon
    cells: tuple[Cell, ...]
    strip: str  # the strip in words
    news_age_s: float | None
    stale: bool
    open_incidents: int
    pending_goal: str
    final: bool
    wishes: tuple[str, ...]  # what a person can ask of it now


@dataclass(frozen=True)
class EvidenceView:
    what: str
    value: str
    age_s: float | None  # None: nobody can say how long ago it was told


@dataclass(frozen=True)
class FindingView:
    name: str
    status: str
    tone: str
    reason: str
    held_s: float
    confirm_s: float | None
    held_pct: int | None
    culprit: str
    key_line: str
    evidence: tuple[EvidenceView, ...]


@dataclass(frozen=True)
class IncidentView:
    id: str
    run: str
    attempt: int | None
    title: str
    sentence: str
    state: str
    severity: str
    tone: str
    key_line: str
    response: str
    opened_at: float | None
    resolved_at: float | None
    evidence: tuple[EvidenceView, ...]


def run_view(doc: Doc, *, stale_s: float) -> RunView:
    """A run as a row. A verdict that rests on old news is shown with its age, never as fresh."""
    verdict = doc.get("verdict") or ""
    suspected = bool(doc.get("suspected"))
    age_s = doc.get("news_age_s")
    final = bool(doc.get("final"))
    stale = not final and (doc.get("reachable") is False or (age_s is not None and age_s > stale_s))
    cells = tuple(_cell(gpu) for gpu in doc.get("gpus") or ())
    return RunView(
        id=str(doc.get("id", "")),
        name=str(doc.get("name") or doc.get("id", "")),
        host=str(doc.get("host") or "unknown host"),
        doc=doc,
        verdict=verdict,
        cause=doc.get("cause") or "none",
        sentence=doc.get("sentence") or "No verdict yet.",
        tone=tone(verdict, suspected=suspected) if verdict else "busy",
        state=f"{spoken(verdict or 'no word yet')}{' suspected' if suspected else ''}",
        cells=cells,
        strip=_strip_words(cells),
        news_age_s=age_s,
        stale=stale,
        open_incidents=int(doc.get("open_incidents") or 0),
        pending_goal=_pending_goal(doc),
        final=final,
        wishes=wishes(str(doc.get("kind") or ""), verdict, final),
    )


def in_order(runs: list[RunView]) -> list[RunView]:
    """Those that need a person first, then the living, then the ended; newest first within each."""
    weight = {"bad": 0, "warn": 0, "unknown": 1, "busy": 2, "ok": 2, "off": 3, "done": 3}
    newest = sorted(runs, key=lambda run: str(run.doc.get("created_at") or ""), reverse=True)
    return sorted(newest, key=lambda run: (not run.open_incidents, weight.get(run.tone, 1)))


def page_tone(runs: list[RunView]) -> str:
    """The state of the whole fleet for title and favicon: the worst of the runs that are not over."""
    for candidate in ("bad", "warn", "unknown", "busy", "ok"):
        if any(run.tone == candidate and (run.open_incidents or not run.final) for run in runs):
            return candidate
    return "off"


def findings(record: Doc | None, told_age_s: float | None) -> tuple[FindingView, ...]:
    """Findings of a verdict that was told so long ago: failing, pending, unknown, then the satisfied rules."""
    order = (Status.FAILING, Status.PENDING, Status.UNKNOWN, Status.OK)
    read = [_finding(item, told_age_s) for item in (record or {}).get("findings") or ()]
    return tuple(sorted(read, key=lambda item: [status.value for status in order].index(item.status)))


def incident_view(doc: Doc) -> IncidentView:
    state = str(doc.get("state") or "open")
    severity = str(doc.get("severity") or "warn")
    verdict, cause = doc.get("verdict"), doc.get("cause")
    title = spoken(verdict) if cause in (None, "none") else f"{spoken(verdict)}: {cause}"
    return IncidentView(
        id=str(doc.get("id", "")),
        run=str(doc.get("run", "")),
        attempt=doc.get("attempt"),
        title=title,
        sentence=str(doc.get("sentence") or title),
        state=state,
        severity=severity,
        tone="off" if state == "resolved" else SEVERITY_TONES.get(severity, "warn"),
        key_line=str(doc.get("key_line") or ""),
        response=str(doc.get("response_text") or spoken(doc.get("response") or "none")),
        opened_at=unix(doc.get("opened_at")),
        resolved_at=unix(doc.get("resolved_at")),
        evidence=tuple(_evidence(item, doc.get("told_age_s")) for item in doc.get("evidence") or ()),
    )


def _cell(gpu: Doc) -> Cell:
    kind = gpu.get("class") if gpu.get("class") in GPU_KINDS else "unknown"
    told = [f"GPU {gpu.get('index', '?')} {kind}"]
    if gpu.get("util_pct") is not None:
        told.append(f"{gpu['util_pct']:.0f} % utilisation")
    if gpu.get("power_w") is not None:
        told.append(f"{gpu['power_w']:.0f} W")
    if gpu.get("mem_used_bytes") is not None:
        told.append(f"{gpu['mem_used_bytes'] / 1024**3:.1f} GiB")
    if gpu.get("temp_c") is not None:
        told.append(f"{gpu['temp_c']:.0f} C")
    return Cell(index=int(gpu.get("index") or 0), kind=str(kind), title=", ".join(told))


def _strip_words(cells: tuple[Cell, ...]) -> str:
    """``7 working; GPU 3 spinning``: the crowd is counted, the odd ones are named."""
    if not cells:
        return "no GPU readings"
    kinds = [cell.kind for cell in cells]
    parts = []
    for kind in GPU_KINDS:
        which = [str(cell.index) for cell in cells if cell.kind == kind]
        if which and len(which) <= 3 and len(which) < len(cells):
            parts.append(f"GPU {', '.join(which)} {kind}")
        elif which:
            parts.append(f"{len(which)} {kind}" if len(set(kinds)) > 1 else f"all {len(which)} {kind}")
    return "; ".join(parts)


def _pending_goal(doc: Doc) -> str:
    goal = doc.get("goal") or {}
    return str(goal.get("want") or "") if goal.get("acknowledged") is False else ""


def _finding(data: Doc, told_age_s: float | None) -> FindingView:
    try:
        finding = from_json(Finding, data)
    except ValueError as error:  # written by a newer agent: shown, never guessed at
        return FindingView(
            name=str(data.get("rule", "a rule")),
            status=Status.UNKNOWN.value,
            tone="unknown",
            reason=f"This finding cannot be read: {error}",
            held_s=0.0,
            confirm_s=None,
            held_pct=None,
            culprit="",
            key_line="",
            evidence=(),
        )
    tones = {Status.FAILING: "bad", Status.PENDING: "warn", Status.UNKNOWN: "unknown", Status.OK: "ok"}
    confirm = finding.confirm_s if finding.status is Status.PENDING else None
    return FindingView(
        name=spoken(finding.rule),
        status=finding.status.value,
        tone=tones[finding.status],
        reason=finding.reason,
        held_s=finding.held_s,
        confirm_s=confirm,
        held_pct=None if not confirm else max(0, min(100, round(100 * finding.held_s / confirm))),
        culprit=finding.culprit,
        key_line=finding.key_line,
        evidence=tuple(_evidence_of(item, told_age_s) for item in finding.evidence),
    )


def _evidence(data: Doc, told_age_s: float | None) -> EvidenceView:
    try:
        return _evidence_of(from_json(Evidence, data), told_age_s)
    except ValueError as error:
        return EvidenceView("evidence", f"cannot be read: {error}", None)


def _evidence_of(item: Evidence, told_age_s: float | None) -> EvidenceView:
    """Ages travel: what was 2 s old when it was told 3 s ago is 5 s old now."""
    age_s = None if told_age_s is None else item.age_s + told_age_s
    return EvidenceView(item.what, quantity(item.value, item.unit), age_s)
