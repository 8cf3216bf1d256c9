"""Incidents: a condition with a beginning (pending), a confirmation (open) and an end (resolved)."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, List, Optional, Tuple

from . import causes
from .memory import Incident
from .verdicts import Finding, Status, Verdict

KEEP_RESOLVED = 50


def incident_id(attempt: int, verdict: Verdict, cause: str) -> str:
    """Repeatable by name: the same condition of the same attempt is the same incident, for every agent."""
    by_verdict = cause == "none" or (verdict in (Verdict.HANG, Verdict.PARTIAL_STALL) and cause != "stopped_process")
    return f"{attempt}-{verdict.value if by_verdict else cause}"


def find(incidents: Iterable[Incident], wanted: str) -> Optional[Incident]:
    return next((incident for incident in incidents if incident.id == wanted), None)


def unresolved(incidents: Iterable[Incident]) -> List[Incident]:
    return [incident for incident in incidents if incident.state != "resolved"]


def put(incidents: Tuple[Incident, ...], new: Incident) -> Tuple[Incident, ...]:
    """The incidents with this one added or replaced; old resolved ones are dropped beyond a bound."""
    kept = [incident for incident in incidents if incident.id != new.id] + [new]
    resolved = [incident for incident in kept if incident.state == "resolved"]
    drop = {incident.id for incident in resolved[:-KEEP_RESOLVED]}
    return tuple(incident for incident in kept if incident.id not in drop)


def track(
    incidents: Tuple[Incident, ...], findings: Iterable[Finding], attempt: int, now_s: float
) -> Tuple[Incident, ...]:
    """Open, confirm and end the incidents that rest on findings of a living attempt.

    A finding that answers unknown resolves nothing: the incident stays as it was.
    """
    for finding in findings:
        open_now = [one for one in unresolved(incidents) if one.attempt == attempt and finding.rule == rule_of(one)]
        if finding.status is Status.UNKNOWN:
            continue
        accuses = finding.verdict is not None and finding.status is not Status.OK
        wanted = incident_id(attempt, finding.verdict, finding.cause) if finding.verdict is not None else ""
        for old in open_now:
            if old.id != wanted or not accuses:
                incidents = put(incidents, replace(old, state="resolved", resolved_at_s=now_s))
        if accuses:
            incidents = put(incidents, _from_finding(find(incidents, wanted), finding, attempt, now_s))
    return incidents


def resolve(incidents: Tuple[Incident, ...], gone: Iterable[Incident], now_s: float) -> Tuple[Incident, ...]:
    for one in gone:
        incidents = put(incidents, replace(one, state="resolved", resolved_at_s=now_s))
    return incidents


def rule_of(incident: Incident) -> str:
    """Which rule keeps an incident alive, by its verdict and cause; incidents of ended attempts have none."""
    if incident.verdict is Verdict.PARTIAL_STALL:
        return "worker_lost"
    if incident.verdict is Verdict.STALE_PROCESS:
        return "stale"
    if incident.verdict is Verdict.HANG:
        return "stopped_process" if incident.cause == "stopped_process" else "hang"
    return ""


def _from_finding(old: Optional[Incident], finding: Finding, attempt: int, now_s: float) -> Incident:
    assert finding.verdict is not None
    confirmed = finding.status is Status.FAILING
    if old is not None and old.state == "open":
        return old  # evidence is frozen at opening
    return Incident(
        id=incident_id(attempt, finding.verdict, finding.cause),
        attempt=attempt,
        verdict=finding.verdict,
        cause=finding.cause,
        severity="page" if causes.get(finding.cause).action == causes.PAGE else "warn",
        state="open" if confirmed else "pending",
        since_s=old.since_s if old is not None and old.state == "pending" else now_s - finding.held_s,
        sentence=finding.reason,
        key_line=finding.key_line,
        evidence=finding.evidence,
        opened_at_s=now_s if confirmed else None,
    )
