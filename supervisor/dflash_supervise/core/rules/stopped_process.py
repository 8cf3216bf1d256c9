"""The main process is in state T: somebody stopped it. The one cure is one SIGCONT; else a person is called."""

from __future__ import annotations

from ..facts import ProcessesReading
from ..policy import Policy
from ..verdicts import Evidence, Finding, Status, Verdict
from ..view import View

RULE = "stopped_process"


def stopped_process(view: View, policy: Policy) -> Finding:
    """Judge a living attempt whose main process is stopped (not traced)."""
    since = view.attempt.stopped_since_s
    reading = view.seen.processes
    if not isinstance(reading, ProcessesReading):
        return Finding(RULE, Status.UNKNOWN, "the processes cannot be read")
    if since is None:
        return Finding(RULE, Status.OK, "the main process is not stopped")
    if view.traced:
        return Finding(RULE, Status.OK, "a debugger holds the process")
    held = view.watched_s(since)
    main = [p for p in reading.alive if p.via == "main"]
    states = tuple(Evidence(f"state of process {p.pid}", p.state) for p in main)
    evidence = (*states, Evidence("stopped for", round(held), "s"))
    return Finding(
        RULE,
        Status.FAILING if held >= policy.stopped_s else Status.PENDING,
        "the main process is stopped (state T)",
        verdict=Verdict.HANG,
        cause="stopped_process",
        held_s=held,
        confirm_s=policy.stopped_s,
        evidence=evidence,
        culprit=f"process {main[0].pid}" if main else "",
    )
