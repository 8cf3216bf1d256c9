"""The runs of the invented fleet from which nothing new comes: lost, refused before the launch, done."""

from __future__ import annotations

from dflash_supervise.core.facts import ExitReading, LogReading
from dflash_supervise.core.verdicts import Evidence, Finding, Status, Verdict
from dflash_supervise.web.words import rfc3339
from dflash_supervise.wire import to_json
from tests.unit.web.docs import gpu_docs, incident, observation, run_doc, series
from tests.unit.web.fakes import FakeStore
from tests.unit.web.story import log_text, verdict


def unreachable(store: FakeStore, now: float) -> None:
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
    store.logs[run["id"]] = (1, log_text(run, now - 252).encode())


def stale(store: FakeStore, now: float) -> None:
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
        verdict(
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


def completed(store: FakeStore, now: float) -> None:
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
    store.put_record(run["id"], verdict(run, [], now))
    store.put_record(run["id"], observation(run, exit=ExitReading(code=0, signal=None, done=True)))
    store.logs[run["id"]] = (1, b"[dflash] ended code=0 signal=- after=7100s\n")
