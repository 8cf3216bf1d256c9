"""One worker is dead or stands still while the process lives: neither exit code nor log age can see this."""

from __future__ import annotations

from typing import Optional

from .. import causes
from ..facts import LogReading, ProgressReading, Traceback, WorkerFact
from ..policy import Policy
from ..verdicts import Evidence, Finding, Status, Verdict
from ..view import View, limits

RULE = "worker_lost"


def worker_lost(view: View, policy: Policy) -> Finding:
    """Judge a living attempt by the step of each worker.

    A worker that only stands still may be evaluating or saving alone: it is no culprit. One that is
    dead, or whose thread left its traceback in the log, is.
    """
    progress = view.seen.progress
    if not isinstance(progress, ProgressReading):
        return Finding(RULE, Status.UNKNOWN, "the workers' steps cannot be read")
    if view.attempt.stopped_since_s is not None:
        return Finding(RULE, Status.UNKNOWN, "the process is stopped, which is another rule's matter")
    workers = [worker for worker in progress.workers if not _finished(worker, progress)]
    if len(progress.workers) < 2 or not workers or view.phase not in ("training", "warmup") or view.finishing:
        return Finding(RULE, Status.OK, "no worker stands out")
    ranked = sorted(workers, key=lambda worker: (worker.alive is not False, -_flat_s(view, worker.id)))
    lost = next((worker for worker in ranked if worker.alive is False or _behind(view, worker, policy)), None)
    if lost is None:
        return Finding(RULE, Status.OK, "every worker moves")
    if lost.alive is not False and _flat_s(view, lost.id) < _patience_s(view, lost, policy):
        return Finding(RULE, Status.UNKNOWN, f"this agent has not watched worker {lost.id} for long enough")
    return _lost(view, lost, progress, policy)


def _lost(view: View, lost: WorkerFact, progress: ProgressReading, policy: Policy) -> Finding:
    dead, held, found = lost.alive is False, _flat_s(view, lost.id), _traceback_of(view, lost)
    limit = policy.worker_lost_traceback_s if found is not None else policy.worker_lost_s
    evidence = [Evidence(f"worker {lost.id} step flat", round(held), "s")]
    evidence += [Evidence(f"worker {item.id}", "dead") for item in progress.workers if item.alive is False][:4]
    evidence += [Evidence(f"worker {item.id} step", item.step) for item in progress.workers if item.id != lost.id][:4]
    if found is not None:
        evidence.append(Evidence("log", found.key_line[:500]))
    if view.attempt.inner:
        evidence.append(Evidence("inner restarts", view.attempt.inner))
    cause = causes.match(found.key_line) if found is not None else None
    what = f"worker {lost.id} is dead" if dead else f"worker {lost.id} stands still while others move"
    # A launcher that restarts its workers itself is left to do so.
    named = (dead or found is not None) and not view.attempt.inner
    return Finding(
        RULE,
        Status.FAILING if held >= limit else Status.PENDING,
        what if found is None else f"{what}: {found.key_line[:200]}",
        verdict=Verdict.PARTIAL_STALL,
        cause=cause or "worker_dead",
        held_s=held,
        confirm_s=limit,
        evidence=tuple(evidence),
        culprit=f"worker {lost.id}" if named else "",
        key_line=found.key_line if found is not None else "",
    )


def _finished(worker: WorkerFact, progress: ProgressReading) -> bool:
    return worker.step is not None and progress.steps_total is not None and worker.step >= progress.steps_total


def _behind(view: View, worker: WorkerFact, policy: Policy) -> bool:
    """Does it stand still beyond the limit of a step while another has moved since."""
    patience_s = _patience_s(view, worker, policy)
    newest, mine = max(known.changed_at_s for known in view.attempt.workers), _changed_at_s(view, worker.id)
    return newest > mine and view.now_s - mine >= patience_s and view.now_s - newest < patience_s


def _patience_s(view: View, worker: WorkerFact, policy: Policy) -> float:
    suspect_s, _ = limits(view.attempt, policy)
    return suspect_s if _traceback_of(view, worker) is None else min(suspect_s, policy.worker_lost_traceback_s)


def _changed_at_s(view: View, name: str) -> float:
    return next(worker.changed_at_s for worker in view.attempt.workers if worker.id == name)


def _flat_s(view: View, name: str) -> float:
    return view.watched_s(_changed_at_s(view, name))


def _traceback_of(view: View, worker: WorkerFact) -> Optional[Traceback]:
    """The end of this very worker's thread, in the log. A helper thread's death says nothing about a worker."""
    log = view.seen.log
    if not isinstance(log, LogReading) or worker.alive is True:
        return None
    return next((found for found in log.tracebacks if found.thread == worker.id), None)
