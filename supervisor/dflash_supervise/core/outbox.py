"""Who hears what: from one new record and what was already told, the messages to send. Pure.

One crash that is cured is one message (it says that the run was restarted), and so is one hang; the start of
the next attempt is part of it. A key names each message for ever, so what arrives twice is told once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Any, Dict, Mapping, Optional, Tuple

# Every other kind of record tells nothing.
TELLING_KINDS = frozenset({"attempt_start", "incident", "verdict"})
QUIET_VERDICTS = frozenset({"completed", "stopped"})


@dataclass(frozen=True)
class RunFacts:
    """What a message says about the run beside the record itself."""

    run_id: str
    name: str
    host: str
    kind: str
    want: str  # goal: run, stop, hold
    step: Optional[int] = None
    steps_total: Optional[int] = None
    checkpoint_step: Optional[int] = None
    loss: Optional[float] = None
    tau: Optional[float] = None
    gpus: Optional[int] = None
    final: bool = False
    muted: bool = False  # history of before we took the run over


@dataclass(frozen=True)
class Telling:
    """One message. ``key`` is unique within the run; ``facts`` is plain data for ``alerts.message``."""

    key: str
    kind: str  # started, incident, resolved, reminder, refused, gave_up, done, stopped; see store.fleet for more
    severity: str  # page, warn, info
    facts: Mapping[str, Any]


def tell(record: Mapping[str, Any], run: RunFacts, told: AbstractSet[str]) -> Tuple[Telling, ...]:
    """The messages that this record asks for.

    Args:
        record: as the agent wrote it.
        run: the run with this record applied.
        told: keys of all earlier messages of this run.
    """
    if run.muted:
        return ()
    kind = record.get("kind")
    if kind == "attempt_start":
        found = _started(record, run)
    elif kind == "incident":
        found = _incident(record, run, told)
    elif kind == "verdict" and record.get("final"):
        found = _ended(record, run, told)
    else:
        found = None
    return () if found is None or found.key in told else (found,)


def remind(
    incident: Mapping[str, Any], run: RunFacts, *, open_s: float, every_s: float, most: int
) -> Tuple[Telling, ...]:
    """The reminder that is due for an incident whose page has been open for ``open_s``; each number once."""
    number = min(int(open_s // every_s), most) if every_s > 0 else 0
    if number < 1 or incident.get("severity") != "page" or run.want == "stop":
        return ()
    facts = _facts(run, incident, number=number, open_s=open_s)
    return (Telling("reminder/{}/{}".format(incident["id"], number), "reminder", "page", facts),)


def _started(record: Mapping[str, Any], run: RunFacts) -> Optional[Telling]:
    # One key: the starts of later attempts are part of the message that says why they were needed.
    return Telling("started", "started", "info", _facts(run, record)) if record.get("attempt", 0) >= 1 else None


def _incident(record: Mapping[str, Any], run: RunFacts, told: AbstractSet[str]) -> Optional[Telling]:
    page, warn = "incident/{}/page".format(record["id"]), "incident/{}/warn".format(record["id"])
    if run.want == "stop":  # a person's stop hides all of it
        return None
    if record["state"] == "resolved":
        heard = page in told and not run.final
        return Telling("resolved/" + record["id"], "resolved", "info", _facts(run, record)) if heard else None
    if record["state"] != "open" or record["severity"] == "info" or not record.get("response"):
        return None  # a message says what is done about it, so it waits for that
    if page in told or _end_key(record) in told:
        return None
    kind = "refused" if record.get("attempt") == 0 else "incident"
    key = page if record["severity"] == "page" else warn
    return Telling(key, kind, record["severity"], _facts(run, record))


def _ended(record: Mapping[str, Any], run: RunFacts, told: AbstractSet[str]) -> Optional[Telling]:
    verdict, attempt = record["verdict"], record.get("attempt")
    if verdict in QUIET_VERDICTS:
        kind = "done" if verdict == "completed" else "stopped"
        return Telling(_end_key(record), kind, "info", _facts(run, record))
    said = (f"end/{attempt}/", f"incident/{attempt}-")
    if any(key.startswith(said) and not key.endswith("/warn") for key in told):
        return None  # a page of this attempt says it already, or its incident will
    kind = "refused" if attempt == 0 else "gave_up"
    return Telling(_end_key(record), kind, "page", _facts(run, record, **_accusation(record)))


def _accusation(record: Mapping[str, Any]) -> Dict[str, Any]:
    """What the final verdict rests on, for its incident may be a line further down."""
    failing = [finding for finding in record.get("findings", ()) if finding.get("status") == "failing"]
    found = {key: failing[-1][key] for key in ("key_line", "evidence") if failing and failing[-1].get(key)}
    why = (record.get("next") or {}).get("why")
    return {**found, "response_text": why} if why else found


def _end_key(record: Mapping[str, Any]) -> str:
    return "end/{}/{}".format(record.get("attempt"), _cause(record))


def _cause(record: Mapping[str, Any]) -> str:
    """As ``core.incidents`` names an incident: by its cause, or its verdict where there is none."""
    cause = str(record.get("cause", "none"))
    return str(record["verdict"]) if cause == "none" else cause


_COPIED = (
    "attempt",
    "verdict",
    "cause",
    "sentence",
    "severity",
    "key_line",
    "evidence",
    "response",
    "response_text",
    "steps_lost",
    "next",
    "at",
)


def _facts(run: RunFacts, record: Mapping[str, Any], **more: Any) -> Dict[str, Any]:
    facts: Dict[str, Any] = {key: record[key] for key in _COPIED if record.get(key) not in (None, "", [])}
    for key in ("run_id", "name", "host", "step", "steps_total", "checkpoint_step", "loss", "tau", "gpus"):
        value = getattr(run, key)
        if value is not None:
            facts[key] = value
    facts["run_kind"] = run.kind
    facts.update(more)
    return facts
