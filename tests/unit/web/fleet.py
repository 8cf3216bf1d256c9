"""A small fleet as it might look on a bad morning: the data behind the pictures and the browser tests."""

from __future__ import annotations

from dflash_supervise.core.facts import ExitReading, LogReading
from dflash_supervise.core.verdicts import Evidence, Finding, Status, Verdict
from dflash_supervise.web.control import Doc
from dflash_supervise.web.words import rfc3339
from dflash_supervise.wire import to_json
from tests.unit.web.fakes import FakeControl, FakeStore, gpu_docs, incident, observation, ok_findings, run_doc, series

FX_LINE = (
    "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function. "
    "This is not supported at the moment."
)
HOSTILE = (
    "\x1b]0;owned\x07<script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\"> \x1b[31mred\x1b[0m \u202egnp.exe \x9b2J\x1b]8;;http://evil.example\x07link"
)


def bad_morning(now: float) -> tuple[FakeStore, FakeControl]:
    store, control = FakeStore(), FakeControl()
    for build in (_healthy, _stalled, _restarted, _unreachable, _stale, _completed):
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
    store.put_record(run["id"], _start(1, now - 1700, "the goal is run"))
    store.put_record(run["id"], _verdict(run, ok_findings(), now))
    store.put_record(run["id"], observation(run))
    store.logs[run["id"]] = (1, _log(run, now).encode())


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
    store.put_record(run["id"], _start(1, now - 1520, "the goal is run"))
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
    store.put_record(run["id"], _start(2, now - 1485, "port_in_use, restart 1 of 1", ["another_port"]))
    store.put_record(
        run["id"],
        _verdict(run, findings, now, {"what": "restart", "in_s": 2, "why": "worker_lost is confirmed at 10 s"}),
    )
    store.put_record(run["id"], observation(run))
    store.logs[run["id"]] = (2, (_log(run, now) + _threads_die() + _log(run, now, lines=12)).encode())


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
    store.put_record(run["id"], _start(3, now - 60, "cuda_illegal_memory_access, restart 1 of 1"))
    store.put_record(
        run["id"],
        _verdict(
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


def _unreachable(store: FakeStore, now: float) -> None:
    run = run_doc(
        "mistral-long",
        now - 252,
        host="gpu-a07",
        target="mia@gpu-a07:/data/dflash",
        verdict="host_unreachable",
        cause="ssh_connection_lost",
        sentence=(
            "gpu-a07 has not answered for 4 minutes. The agent there goes on by itself; nothing is restarted from here."
        ),
        reachable=False,
        unreachable_since=rfc3339(now - 252),
        last_verdict="running",
        step=7710,
        checkpoint_step=7690,
        loss=2.871,
        tokens_per_s=46020.0,
        gpus=gpu_docs(["working"] * 8, seed=3),
        open_incidents=1,
        goal={"want": "hold", "generation": 5, "acknowledged": False, "since": rfc3339(now - 30)},
    )
    store.put_run(run)
    store.series_docs[run["id"]] = series(now - 252, [[(1800.0, "working")]] * 8, seed=3)
    store.incident_docs.append(
        incident(run, now, opened_at=rfc3339(now - 250), response_text="waiting; one message was sent")
    )
    record = observation(run)
    store.put_record(run["id"], {**record, "at": rfc3339(now - 252), "received_at": rfc3339(now - 252)})
    store.logs[run["id"]] = (1, _log(run, now - 252).encode())


def _stale(store: FakeStore, now: float) -> None:
    kinds = ["off", "off", "off", "spinning", "off", "off", "off", "off"]
    gpus = gpu_docs(kinds, mem_gib=0.0, seed=4)
    run = run_doc(
        "seed-picture",
        now,
        verdict="stale_process",
        cause="zombie_gpu_memory",
        attempt=0,
        step=None,
        steps_total=None,
        loss=None,
        tokens_per_s=None,
        tau=None,
        eta_s=None,
        phase=None,
        gpus=gpus,
        open_incidents=1,
        final=True,
        exit_status=6,
        sentence="GPU 3 reads 100 % with 0 MiB held and no process that we can see: nothing was launched.",
    )
    store.put_run(run)
    store.series_docs[run["id"]] = series(now, [[(1800.0, kind)] for kind in kinds], seed=4, quiet_s=1801)
    evidence = (
        Evidence("utilisation GPU 3", 100.0, "%", 0.2),
        Evidence("memory GPU 3", 0.0, "MiB", 0.2),
        Evidence("holders GPU 3", "none visible", "", 0.2),
        Evidence("power GPU 3", 125.8, "W", 0.2),
    )
    finding = Finding(
        "stale_process",
        Status.FAILING,
        "Work on a wanted GPU that belongs to nobody we can see.",
        Verdict.STALE_PROCESS,
        "zombie_gpu_memory",
        held_s=6.0,
        evidence=evidence,
        culprit="GPU 3",
    )
    store.put_record(
        run["id"],
        _verdict(
            run, [to_json(finding)], now, {"what": "give_up", "in_s": None, "why": "reset GPU 3 or reboot the host"}
        ),
    )
    store.put_record(run["id"], observation(run, log=LogReading(exists=False)))
    store.incident_docs.append(
        incident(
            run,
            now,
            evidence=[to_json(item) for item in evidence],
            response="alert_human",
            response_text="not started; reset GPU 3 (nvidia-smi -r -i 3) or reboot the host",
        )
    )


def _completed(store: FakeStore, now: float) -> None:
    run = run_doc(
        "demo-corpus",
        now - 7200,
        verdict="completed",
        final=True,
        exit_status=0,
        step=2000,
        steps_total=2000,
        loss=1.904,
        tokens_per_s=51890.0,
        tau=3.91,
        eta_s=None,
        phase="done",
        sentence="Done: 2,000 of 2,000 steps, accepted length 3.91.",
        gpus=[],
    )
    store.put_run(run)
    store.put_record(run["id"], _verdict(run, [], now))
    store.put_record(run["id"], observation(run, exit=ExitReading(code=0, signal=None, done=True)))
    store.logs[run["id"]] = (1, b"[dflash] ended code=0 signal=- after=7100s\n")


def _start(number: int, at: float, because: str, remedies: list[str] | None = None) -> Doc:
    return {
        "kind": "attempt_start",
        "at": rfc3339(at),
        "attempt": number,
        "because": because,
        "remedies": remedies or [],
        "pid": 4000,
    }


def _verdict(run: Doc, findings: list[Doc], now: float, next_: Doc | None = None) -> Doc:
    return {
        "kind": "verdict",
        "at": rfc3339(now),
        "attempt": run["attempt"],
        "verdict": run["verdict"],
        "cause": run["cause"],
        "sentence": run["sentence"],
        "suspected": run["suspected"],
        "phase": run["phase"],
        "since_s": 8.0,
        "notes": run["notes"],
        "findings": findings,
        "next": next_ or {"what": "nothing", "in_s": None, "why": ""},
        "final": run["final"],
    }


def _log(run: Doc, now: float, lines: int = 60) -> str:
    header = (
        f"[dflash] run={run['id']} attempt={run['attempt']} started={rfc3339(now - 4000)} "
        "argv=python -m dflash_trainer --train train.toml\n"
    )
    out = [header] if lines == 60 else []
    for n in range(lines):
        step = (run["step"] or 0) - lines + n + 1
        at = rfc3339(now - 2 * (lines - n))[11:19]
        loss, rate = (run["loss"] or 2.3) + 0.01 * (n % 7), (run["tokens_per_s"] or 48000) + 37 * (n % 11)
        out.append(f"{at} INFO step={step} loss={loss:.4f} tok/s={rate:.0f} tau=3.{40 + n % 9} lr=5.9e-04\n")
        if n % 20 == 19:
            out.append(f"{at} \x1b[32mINFO\x1b[0m checkpoint step={step} written in 2.1 s\n")
    return "".join(out)


def _threads_die() -> str:
    site = "/workspace/.venv/lib/python3.11/site-packages"
    return (
        "\x1b[31mException in thread train-2:\x1b[0m\n"
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner\n    self.run()\n'
        f'  File "{site}/dflash_trainer/workers.py", line 118, in run\n    loss = self.step(batch)\n'
        f'  File "{site}/torch/_dynamo/eval_frame.py", line 632, in _fn\n    raise RuntimeError(\n'
        f"{FX_LINE}\n"
    )
