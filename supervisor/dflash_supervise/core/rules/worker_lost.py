"""One worker is dead or stands still while the process lives: neither exit code nor log age can see this."""

from __future__ import annotations

from typing import List, Optional, Tuple

from .. import causes
from ..facts import LogReading, ProgressReading, Traceback
from ..policy import Policy
from ..verdicts import Evidence, Finding, Status, Verdict
from ..view import View, limits

RULE = "worker_lost"


def worker_lost(view: View, policy: Policy) -> Finding:
    """Judge a living attempt by the step of each worker."""
    progress = view.seen.progress
    if not isinstance(progress, ProgressReading):
        return Finding(RULE, Status.UNKNOWN, "the workers' steps cannot be read")
    if (
        len(progress.workers) < 2
        or view.phase not in ("training", "warmup")
        or view.attempt.stopped_since_s is not None
    ):
        return Finding(RULE, Status.OK, "no worker stands out")
    dead = [worker.id for worker in progress.workers if worker.alive is False]
    behind = _behind(view, policy)
    if not dead and not behind:
        return Finding(RULE, Status.OK, "every worker moves")
    name = (dead or [behind[0][0]])[0]
    held = max([seconds for worker, seconds in behind if worker == name] or [_flat_s(view, name)])
    found = _thread_traceback(view)
    limit = policy.worker_lost_traceback_s if found is not None else policy.worker_lost_s
    evidence = [Evidence(f"worker {name} step flat", round(held), "s")]
    evidence += [Evidence(f"worker {worker}", "dead") for worker in dead]
    evidence += [Evidence(f"worker {item.id} step", item.step) for item in progress.workers if item.id != name][:4]
    if found is not None:
        evidence.append(Evidence("log", found.key_line[:500]))
    cause = causes.match(found.key_line) if found is not None else None
    what = f"worker {name} is dead" if name in dead else f"worker {name} stands still while others move"
    return Finding(
        RULE,
        Status.FAILING if held >= limit else Status.PENDING,
        what if found is None else f"{what}: {found.key_line[:200]}",
        verdict=Verdict.PARTIAL_STALL,
        cause=cause or "worker_dead",
        held_s=held,
        confirm_s=limit,
        evidence=tuple(evidence),
        culprit=f"worker {name}",
        key_line=found.key_line if found is not None else "",
    )


def _behind(view: View, policy: Policy) -> List[Tuple[str, float]]:
    """(worker, seconds flat) of those that stand still beyond the limit of a step while another has moved since."""
    suspect_s, _ = limits(view.attempt, policy)
    patience = min(suspect_s, policy.worker_lost_traceback_s) if _thread_traceback(view) else suspect_s
    newest = max(worker.changed_at_s for worker in view.attempt.workers)
    out = []
    for worker in view.attempt.workers:
        flat = _flat_s(view, worker.id)
        if newest > worker.changed_at_s and flat >= patience and view.watched_s(newest) < patience:
            out.append((worker.id, flat))
    return out


def _flat_s(view: View, name: str) -> float:
    return max([view.watched_s(worker.changed_at_s) for worker in view.attempt.workers if worker.id == name] or [0.0])


def _thread_traceback(view: View) -> Optional[Traceback]:
    log = view.seen.log
    if not isinstance(log, LogReading):
        return None
    found = [traceback for traceback in log.tracebacks if traceback.thread is not None]
    return found[0] if found else None
