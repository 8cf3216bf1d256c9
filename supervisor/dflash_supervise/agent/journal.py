"""What the agent writes down: records in order, the brain's memory, and what has changed since the last record."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Tuple

from dflash_supervise.agent import brain_state
from dflash_supervise.agent.lane import Job, Lane
from dflash_supervise.agent.record_writer import RecordWriter
from dflash_supervise.agent.records import EPHEMERAL, encode
from dflash_supervise.agent.runtime import wall_clock
from dflash_supervise.core.assessment import Assessment
from dflash_supervise.core.facts import GpusReading, LogReading, Observation
from dflash_supervise.core.gpuwork import classify
from dflash_supervise.core.memory import AttemptMemory, Incident, Memory
from dflash_supervise.core.verdicts import Verdict
from dflash_supervise.wire import to_json

HELD_LINES = 5000  # kept while the workspace does not answer; observations beyond it are dropped first
AGAIN_S = 30.0  # a verdict whose numbers moved is told again after this
INCIDENT_AGAIN_S = 10.0

_DIGITS = re.compile(r"\d+(?:\.\d+)?")


class Journal:
    """Numbers records and hands them to the lane, one batch at a time."""

    def __init__(self, run_dir: str, run_id: str, writer: RecordWriter, spare: Optional[str] = None) -> None:
        """spare: takes the brain's memory while the run directory does not."""
        self._run_dir = run_dir
        self._run_id = run_id
        self._spare = spare
        self._writer = writer
        self._lane = Lane("records")
        self._lines: List[Tuple[str, bytes]] = []
        self._seq = 0
        self._job: Optional[Job[None]] = None
        self.trouble = ""  # why the workspace does not take what is written, as of the last batch that is over

    @property
    def epoch(self) -> str:
        """This agent's epoch."""
        return self._writer.epoch

    def add(self, now_s: float, kind: str, **payload: Any) -> None:
        """Number one record; it is written with the next ``flush``."""
        if len(self._lines) > HELD_LINES and kind in EPHEMERAL:
            return
        self._seq += 1
        head = {"v": 1, "run": self._run_id, "epoch": self.epoch, "seq": self._seq}
        line = encode(dict(head, t_s=round(now_s, 3), at=wall_clock(), kind=kind, **payload))
        self._lines.append((kind, line))

    def flush(self, memory: Optional[Memory], *, durable: bool, wait_s: float = 0.0) -> bool:
        """Write what was added, and the memory if it is given. True when the workspace has it (``durable``: synced).

        A batch that hangs is never joined by a second one; what comes meanwhile is kept.
        """
        if self._job is not None and not self._settle(wait_s):
            return False
        if not self._lines and memory is None:
            return True
        lines, self._lines = self._lines, []
        after = (self.epoch, self._seq)

        def work() -> None:
            self._writer.write(lines, sync=durable)
            if memory is not None:
                brain_state.save(self._run_dir, memory, durable, spare=self._spare, after=after)

        self._job = self._lane.submit(work)
        return self._settle(wait_s) if durable or wait_s else True

    def close(self, wait_s: float) -> bool:
        """Sync everything; False when the workspace did not take it in time."""
        if self._job is not None and not self._settle(wait_s):
            return False
        lines, self._lines = self._lines, []

        def work() -> None:
            self._writer.write(lines, sync=True)
            self._writer.close()

        self._job = self._lane.submit(work)
        return self._settle(wait_s)

    def _settle(self, wait_s: float) -> bool:
        """Whether the batch under way is over and went well."""
        job = self._job
        if job is None:
            return True
        if not job.wait(wait_s):
            return False
        self._job = None
        why = self._writer.trouble
        try:
            job.result()
        except OSError as error:
            why = why or str(error)
        self.trouble = f"the workspace takes no records, so they are kept on the host: {why}" if why else ""
        return not why


@dataclass(frozen=True)
class Told:
    """What was last written down about the attempt, so that only changes are."""

    verdict_key: Tuple[Any, ...] = ()
    verdict_at_s: float = 0.0
    since_key: Tuple[Any, ...] = ()
    since_s: float = 0.0
    incidents: Tuple[Tuple[str, Tuple[Any, ...], float], ...] = ()
    log_tail: Tuple[str, ...] = ()
    tracebacks: int = 0


def verdict_record(told: Told, now: Assessment, now_s: float) -> Tuple[Told, Optional[Dict[str, Any]]]:
    """The payload of a ``verdict`` record when something about it changed, and what was told then.

    Numbers inside a sentence move every second; they alone are news only after half a minute.
    """
    since_key = (now.attempt, now.verdict, now.cause, now.suspected)
    if since_key != told.since_key:
        told = replace(told, since_key=since_key, since_s=now_s)
    calm = now.verdict in (Verdict.RUNNING, Verdict.STARTING)
    sentence = "" if calm else _DIGITS.sub("#", now.sentence)
    key = (*since_key, sentence, now.phase, tuple(note.slug for note in now.notes), now.next.what, now.final)
    if key == told.verdict_key and now_s - told.verdict_at_s < AGAIN_S:
        return told, None
    told = replace(told, verdict_key=key, verdict_at_s=now_s)
    return told, {
        "attempt": now.attempt,
        "verdict": now.verdict.value,
        "cause": now.cause,
        "sentence": now.sentence,
        "suspected": now.suspected,
        "phase": now.phase,
        "since_s": round(told.since_s, 3),
        "notes": [{"slug": note.slug, "reason": note.reason} for note in now.notes],
        "findings": to_json(now.findings),
        "next": {"what": now.next.what, "in_s": now.next.in_s, "why": now.next.why},
        "final": now.final,
    }


def incident_records(told: Told, changed: Tuple[Incident, ...], now_s: float) -> Tuple[Told, List[Dict[str, Any]]]:
    """The incidents worth a record: a new state or response at once, moving evidence every ten seconds."""
    known = {name: (key, at_s) for name, key, at_s in told.incidents}
    records = []
    for incident in changed:
        key = (incident.state, incident.severity, incident.response, incident.response_text)
        before = known.get(incident.id)
        if before is not None and before[0] == key and now_s - before[1] < INCIDENT_AGAIN_S:
            continue
        known[incident.id] = (key, now_s)
        records.append(to_json(incident))
    rows = tuple((name, key, at_s) for name, (key, at_s) in list(known.items())[-200:])
    return replace(told, incidents=rows), records


def ages(attempt: AttemptMemory, now_s: float) -> Dict[str, float]:
    """Seconds since each family last moved, as the brain remembers it; what never moved is absent."""
    if attempt.number == 0:
        return {}
    since = {
        "step": attempt.step_changed_at_s if attempt.step is not None else None,
        "log": attempt.log_grew_at_s,
        "gpu_work": attempt.gpu_worked_at_s,
        "cpu": attempt.busy_at_s,
        "moved": attempt.moved_at_s,
    }
    return {name: round(max(0.0, now_s - at), 1) for name, at in since.items() if at is not None}


def observation_payload(told: Told, seen: Observation) -> Tuple[Told, Dict[str, Any]]:
    """The payload of an ``observation`` record; the log's text only when it changed.

    Every GPU has its work class here, also one that somebody else uses: who looks wants to know what it does.
    """
    data: Dict[str, Any] = to_json(seen)
    if isinstance(seen.log, LogReading):
        log: Dict[str, Any] = data["log"]
        if seen.log.tail == told.log_tail:
            log.pop("tail", None)
        if len(seen.log.tracebacks) == told.tracebacks:
            log.pop("tracebacks", None)
        told = replace(told, log_tail=seen.log.tail, tracebacks=len(seen.log.tracebacks))
    gpus = seen.gpus.gpus if isinstance(seen.gpus, GpusReading) else ()
    return told, {"obs": data, "gpu_class": {gpu.uuid: classify(gpu) for gpu in gpus}}
