"""A small fleet as it might look on a bad morning: the data behind the pictures and the browser tests."""

from __future__ import annotations

from dflash_supervise.core.verdicts import Evidence, Finding, Status, Verdict
from dflash_supervise.web.words import rfc3339
from dflash_supervise.wire import to_json
from tests.unit.web.docs import gpu_docs, incident, observation, ok_findings, run_doc, series
from tests.unit.web.fakes import FakeControl, FakeStore
from tests.unit.web.fleet_quiet import completed, stale, unreachable
from tests.unit.web.story import FX_LINE, log_text, start, threads_die, verdict

HOSTILE = (
    "\x1b]0;owned\x07<script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\"> \x1b[31mred\x1b[0m \u202egnp.exe \x9b2J\x1b]8;;http://evil.example\x07link"
)


def bad_morning(now: float) -> tuple[FakeStore, FakeControl]:
    store, control = FakeStore(), FakeControl()
    for build in (_healthy, _stalled, _restarted, unreachable, stale, completed):
        build(store, now)
    control.host_docs = [
        {
            "host": "lab8",
            "target": "lab8:/workspace",
            "status": "ready",
            "since_at": rfc3339(now - 9000),
            "age_s": 9000.0,
            "error": None,
        },
        {
            "host": "gpu-a07",
            "target": "mia@gpu-a07:/data/dflash",
            "status": "unreachable",
            "since_at": rfc3339(now - 252),
            "age_s": 252.0,
            "error": {
                "code": "ssh_connection_lost",
                "message": "gpu-a07 has not answered on port 22 for 4 minutes.",
                "fix": "The agent there goes on by itself; check the network or `ssh gpu-a07`.",
                "exit_code": 4,
            },
        },
    ]
    return store, control


def _healthy(store: FakeStore, now: float) -> None:
    run = run_doc("qwen-b16", now)
    store.put_run(run)
    store.series_docs[run["id"]] = series(now, [[(1800.0, "working")]] * 8)
    store.put_record(run["id"], start(1, now - 1700, "the goal is run"))
    store.put_record(run["id"], verdict(run, ok_findings(), now))
    store.put_record(run["id"], observation(run))
    store.logs[run["id"]] = (1, log_text(run, now).encode())


def _stalled(store: FakeStore, now: float) -> None:
    kinds = ["working", "working", "idle", "working", "working", "idle", "working", "spinning"]
    run = run_doc(
        "llama-anchor",
        now,
        host="lab8",
        verdict="partial_stall",
        cause="fx_tracing_race",
        suspected=True,
        sentence="Worker train-2 died in a traced function; its step has stood at 812 for 8 s while five others move.",
        attempt=2,
        step=861,
        checkpoint_step=850,
        loss=4.107,
        tokens_per_s=30110.0,
        tau=1.94,
        gpus=gpu_docs(kinds, seed=1),
        open_incidents=1,
        notes=[{"slug": "slow", "reason": "throughput is 63 % of this run's own median"}],
    )
    store.put_run(run)
    plan = [
        [(1800.0, "off"), (1500.0, "idle"), (1430.0, "working"), *([(41.0, kind)] if kind != "working" else [])]
        for kind in kinds
    ]
    store.series_docs[run["id"]] = series(now, plan, seed=1, loss_end=4.1, tok_s=46000.0)
    evidence = (
        Evidence("step of train-2", 812, "", 0.8),
        Evidence("step of train-4", 861, "", 0.8),
        Evidence("power GPU 2", 122.4, "W", 0.3),
        Evidence("power GPU 4", 608.0, "W", 0.3),
        Evidence("thread train-2", "traceback at 12:41:07", "", 8.1),
    )
    findings = [
        to_json(
            Finding(
                "worker_lost",
                Status.PENDING,
                "One worker's step stands still while the others move, and its traceback is in the log.",
                Verdict.PARTIAL_STALL,
                "fx_tracing_race",
                held_s=8.1,
                confirm_s=10.0,
                evidence=evidence,
                culprit="thread train-2 on GPU 2",
                key_line=FX_LINE,
            )
        ),
        to_json(Finding("gpu_fault", Status.UNKNOWN, "The kernel log is not readable, so an XID goes unseen.")),
        *ok_findings()[:3],
    ]
    store.incident_docs.append(
        incident(
            run,
            now,
            sentence=run["sentence"],
            key_line=FX_LINE,
            severity="warn",
            evidence=[to_json(item) for item in evidence[:4]],
            response="restart",
            response_text="confirmed in 2 s, then a restart with process workers (1 of 3)",
        )
    )
    store.put_record(run["id"], start(1, now - 1520, "the goal is run"))
    store.put_record(
        run["id"],
        {
            "kind": "attempt_end",
            "at": rfc3339(now - 1490),
            "attempt": 1,
            "verdict": "early_crash",
            "cause": "port_in_use",
            "key_line": "RuntimeError: The server socket has failed to listen: EADDRINUSE",
            "code": 1,
            "signal": None,
            "step": None,
            "checkpoint_step": None,
            "ran_s": 30.0,
        },
    )
    store.put_record(run["id"], start(2, now - 1485, "port_in_use, restart 1 of 1", ["another_port"]))
    store.put_record(
        run["id"],
        verdict(run, findings, now, {"what": "restart", "in_s": 2, "why": "worker_lost is confirmed at 10 s"}),
    )
    store.put_record(run["id"], observation(run))
    store.logs[run["id"]] = (2, (log_text(run, now) + threads_die() + log_text(run, now, lines=12)).encode())


def _restarted(store: FakeStore, now: float) -> None:
    run = run_doc(
        "phi-small",
        now,
        verdict="starting",
        sentence="Attempt 3 resumes from checkpoint 3,200; it compiles, and 41 compiler processes are busy.",
        phase="compiling",
        attempt=3,
        step=3200,
        checkpoint_step=3200,
        steps_total=9000,
        loss=None,
        tokens_per_s=None,
        tau=None,
        eta_s=None,
        gpus=gpu_docs(["idle"] * 8, mem_gib=18.0, seed=2),
        open_incidents=1,
    )
    store.put_run(run)
    plan = [[(1800.0, "working"), (95.0, "off"), (60.0, "idle")]] * 8
    store.series_docs[run["id"]] = series(now, plan, seed=2, quiet_s=95)
    key = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    store.incident_docs.append(
        incident(
            run,
            now,
            attempt=2,
            verdict="crash",
            cause="cuda_illegal_memory_access",
            sentence="Attempt 2 ended with exit code 1 at step 3,214: illegal memory access on rank 5.",
            key_line=key,
            evidence=[
                to_json(Evidence("exit code", 1)),
                to_json(Evidence("last step", 3214)),
                to_json(Evidence("steps lost", 14)),
            ],
            response="restart",
            response_text="restarting from checkpoint 3,200 (1 of 1)",
            opened_at=rfc3339(now - 96),
        )
    )
    store.put_record(
        run["id"],
        {
            "kind": "attempt_end",
            "at": rfc3339(now - 96),
            "attempt": 2,
            "verdict": "crash",
            "cause": "cuda_illegal_memory_access",
            "key_line": key,
            "code": 1,
            "signal": None,
            "step": 3214,
            "checkpoint_step": 3200,
            "ran_s": 8000.0,
        },
    )
    store.put_record(
        run["id"],
        {
            "kind": "action",
            "at": rfc3339(now - 66),
            "type": "Launch",
            "attempt": 3,
            "because": "cuda_illegal_memory_access, restart 1 of 1",
        },
    )
    store.put_record(run["id"], start(3, now - 60, "cuda_illegal_memory_access, restart 1 of 1"))
    store.put_record(
        run["id"],
        verdict(
            run,
            ok_findings()[:2],
            now,
            {"what": "wait", "in_s": None, "why": "the first step may take 30 min while anything grows"},
        ),
    )
    store.put_record(run["id"], observation(run))
    store.logs[run["id"]] = (
        3,
        b"[dflash] run=phi-small attempt=3 started=2026-05-04T12:41:40Z argv=python -m dflash_trainer\n",
    )
