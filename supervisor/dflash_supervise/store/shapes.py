"""The API's documents from rows. Whoever reads knows no table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from dflash_supervise import wire
from dflash_supervise.core.verdicts import Evidence, Finding
from dflash_supervise.store import view as views
from dflash_supervise.store.host_time import Since

Doc = dict[str, Any]

_FINAL_STATUS = {"completed": 0, "stopped": 103, "hang": 104, "partial_stall": 104, "ended_unclear": 105}
# Where the cause, not the verdict, says that the run was lost.
_LOST = frozenset({"history_lost", "host_changed"})


def run_doc(
    row: Mapping[str, Any], host: Mapping[str, Any] | None, open_incidents: int, now: float, since: Since
) -> Doc:
    """A Run. A run whose link is down is told as host_unreachable, beside what the host said last."""
    spec, view = json.loads(row["spec"]), json.loads(row["view"] or "{}")
    told = json.loads(row["verdict"]) if row["verdict"] else None
    verdict = _verdict(told, row, host)
    last = told or {}
    news_age_s = None if row["news_at"] is None else max(0.0, now - row["news_at"])
    return {
        "id": row["id"],
        "name": row["name"],
        "host": row["host"],
        "target": row["target"],
        "workspace": row["workspace"],
        "kind": row["kind"],
        "preset": spec.get("policy", {}).get("preset"),
        "goal": {
            "want": spec["goal"]["want"],
            "hold_for_s": spec["goal"].get("hold_for_s"),
            "generation": row["generation"],
            "acknowledged": row["acknowledged"] >= row["generation"],
            "since": views.rfc3339(row["goal_since_at"]),
            **_hold(spec["goal"], _sum(since.goal_s, news_age_s), now),
        },
        **verdict,
        "verdict_age_s": _sum(since.verdict_s, news_age_s),
        "attempt": row["attempt"],
        **views.of_attempt(view, row["attempt"], final=bool(row["final"])),
        "phase": last.get("phase") or view.get("phase"),
        "gpus": view.get("gpus", []),
        "missing": view.get("missing", {}),
        "news_at": views.rfc3339(row["news_at"]),
        "news_age_s": news_age_s,
        "created_at": views.rfc3339(row["created_at"]),
        "final": bool(row["final"]),
        "exit_status": exit_status(last) if row["final"] else None,
        "next": last.get("next"),
        "open_incidents": open_incidents,
        "notes": _notes(last, row, host),
        "read_only": row["owner_elsewhere"],
    }


def _sum(since_s: float | None, news_age_s: float | None) -> float | None:
    """The age of what the host said so many seconds before its last word."""
    return None if since_s is None or news_age_s is None else since_s + news_age_s


def _hold(goal: Mapping[str, Any], in_force_s: float | None, now: float) -> Doc:
    """How long a hold goes on, by the host's clock; None without an end, and while it is not known to be in force."""
    if goal["want"] != "hold" or goal.get("hold_for_s") is None or in_force_s is None:
        return {"hold_left_s": None, "hold_until": None}
    left_s = float(goal["hold_for_s"]) - in_force_s
    return {"hold_left_s": max(0.0, left_s), "hold_until": views.rfc3339(now + left_s)}


def _verdict(told: Mapping[str, Any] | None, row: Mapping[str, Any], host: Mapping[str, Any] | None) -> Doc:
    status = host["status"] if host else "connecting"
    last = told or {}
    doc: Doc = {
        "verdict": last.get("verdict"),
        "cause": last.get("cause", "none"),
        "sentence": last.get("sentence", "waiting for the first word from the host"),
        "suspected": bool(last.get("suspected", False)),
        "key_line": _key_line(last),
        "reachable": {"ready": True, "unreachable": False}.get(status),
        "unreachable_since": None,
        "last_verdict": last.get("verdict"),
    }
    if status != "unreachable" or host is None:
        return doc
    doc["unreachable_since"] = views.rfc3339(host["since_at"])
    if row["final"]:
        return doc
    error = json.loads(host["error"] or "{}")
    doc.update(
        verdict="host_unreachable",
        cause=unreachable_cause(error),
        sentence=f"{row['host']} does not answer: {error.get('message', 'no reason known')}",
        suspected=False,
        key_line="",
    )
    return doc


def _key_line(verdict: Mapping[str, Any]) -> str:
    """The line of the log that speaks for the verdict; empty when no finding that accuses names one."""
    accused = [one for one in verdict.get("findings", []) if one.get("status") in ("failing", "pending")]
    mine = [one for one in accused if one.get("verdict") == verdict.get("verdict")]
    return next((str(one["key_line"]) for one in mine if one.get("key_line")), "")


def unreachable_cause(error: Mapping[str, Any]) -> str:
    """The catalogue's slug for a link error."""
    code = error.get("code", "")
    if code in ("host_key_changed", "host_key_unknown", "host_key_revoked"):
        return "host_key_changed" if code == "host_key_changed" else "auth_error"
    return {"auth": "auth_error", "no_channel": "too_many_sessions", "agent_silent": "agent_silent"}.get(
        code, "ssh_connection_lost"
    )


def exit_status(verdict: Mapping[str, Any]) -> int:
    """The supervisor's exit code for the verdict that ended a run."""
    if verdict.get("cause") in _LOST:
        return 105
    if verdict.get("attempt") == 0 and verdict.get("verdict") == "stale_process":
        return 6
    return _FINAL_STATUS.get(verdict.get("verdict", ""), 100)


def _notes(verdict: Mapping[str, Any], row: Mapping[str, Any], host: Mapping[str, Any] | None) -> list[Doc]:
    notes = list(verdict.get("notes", []))
    if host is not None and host["status"] == "ready" and _is_silent(row):
        heard = row["news_at"]
        said = "has said nothing yet" if heard is None else f"has not since {views.rfc3339(heard)}"
        notes.append({"slug": "agent_silent", "reason": f"the host answers, the run's agent {said}"})
    if row["owner_elsewhere"]:
        reason = f"supervisor {row['owner_elsewhere']} took this run over; adopt it to take it back"
        notes.append({"slug": "spec_conflict", "reason": reason})
    return notes


def _is_silent(row: Mapping[str, Any]) -> bool:
    """Marked silent, and not heard since: the mark is taken back with the daemon's next tick."""
    marked, heard = row["silent_since_at"], row["news_at"]
    return marked is not None and (heard is None or heard <= marked)


def incident_doc(row: Mapping[str, Any]) -> Doc:
    """An Incident with every field that the wire leaves out when it has its default."""
    payload = json.loads(row["payload"])
    return {
        "id": row["id"],
        "run": row["run"],
        "attempt": row["attempt"],
        "verdict": payload.get("verdict"),
        "cause": row["cause"],
        "severity": row["severity"],
        "state": row["state"],
        "since_s": payload.get("since_s"),
        "sentence": payload.get("sentence", ""),
        "key_line": payload.get("key_line", ""),
        "evidence": [_evidence(item) for item in payload.get("evidence", [])],
        "response": payload.get("response", ""),
        "response_text": payload.get("response_text", ""),
        "steps_lost": payload.get("steps_lost"),
        "opened_at": row["opened_at"],
        "resolved_at": row["resolved_at"],
    }


def verdict_doc(record: Mapping[str, Any], watched_s: float = 0.0) -> Doc:
    """A verdict record with its findings written out in full.

    watched_s: host seconds for which its agent has watched on. While it told nothing new, what it suspects held.
    """
    findings = [_finding(item) for item in record.get("findings", [])]
    if record.get("suspected"):
        findings = [_held_on(one, record, watched_s) for one in findings]
    return {**record, "findings": findings}


def _held_on(finding: Any, record: Mapping[str, Any], watched_s: float) -> Any:
    if finding.get("status") != "pending" or finding.get("verdict") != record.get("verdict"):
        return finding
    held_s, confirm_s = float(finding.get("held_s") or 0.0) + watched_s, finding.get("confirm_s")
    # Confirmed would have been told.
    return {**finding, "held_s": held_s if confirm_s is None else min(held_s, confirm_s)}


def _finding(item: Any) -> Any:
    try:
        finding = wire.from_json(Finding, item)
    except ValueError:
        return item  # a newer agent's finding is shown as it came
    full = dataclasses.asdict(finding)
    full["status"] = finding.status.value
    full["verdict"] = finding.verdict.value if finding.verdict else None
    full["evidence"] = [dataclasses.asdict(item) for item in finding.evidence]
    return full


def _evidence(item: Any) -> Any:
    try:
        return dataclasses.asdict(wire.from_json(Evidence, item))
    except ValueError:
        return item


def record_doc(row: Mapping[str, Any]) -> Doc:
    return {"row": row["row"], "received_at": views.rfc3339(row["received_at"]), **json.loads(row["payload"])}
