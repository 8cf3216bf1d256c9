"""What can go wrong on a GPU, one scene each: made to happen for real, and what the product said and did."""

from __future__ import annotations

import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.gpu.desk import Desk, read_at
from tests.lab import processes

MANY_STEPS = 100_000
OVERHEAD_STEPS, OVERHEAD_TURNS = 25, 4


@dataclass(frozen=True)
class Row:
    """One line of the table. Seconds count from the fault; None: not measured here."""

    scene: str
    want: str
    got: str
    verdict_s: float | None = None
    next_step_s: float | None = None
    gpus: str = ""
    note: str = ""

    @property
    def right(self) -> bool:
        return self.got in self.want.split(" or ")


def first_step(desk: Desk) -> list[Row]:
    """The bundled trainer, threads, compiled flex attention: from ``start`` to its first step; then a person's stop."""
    began = time.time()
    run_id = desk.start(steps=MANY_STEPS)
    stepped = desk.next_step_at(run_id, 1) - began
    time.sleep(5.0)
    classes = ",".join(desk.classes(run_id))
    asked = time.time()
    desk.cli("stop", run_id, "--yes")
    run = desk.wait_final(run_id)
    return [
        Row("bundled trainer starts", "running", "running", next_step_s=stepped, gpus=classes),
        Row("a person's stop", "stopped", run["verdict"], time.time() - asked, gpus=desk.proven(run_id)),
    ]


def cures(desk: Desk) -> list[Row]:
    """One run of the bundled trainer: an exception in a worker, then a lock that all wait for."""
    run_id = desk.start(fault="exception@12,hang-lock@150:2", steps=MANY_STEPS)
    rows = []
    for attempt, name, want in (
        (1, "exception in a worker", "crash, rank_exception"),
        (2, "all workers wait for a lock", "hang, lock_deadlock"),
    ):
        record = desk.verdict_at(run_id, attempt, 180.0)
        fault = desk.fault_at(run_id, attempt)
        again = desk.next_step_at(run_id, attempt + 1)
        rows.append(
            Row(name, want, _got(record), read_at(record) - fault, again - fault, desk.proven(run_id), _culprit(record))
        )
    _end(desk, run_id)
    return rows


def signals(desk: Desk) -> list[Row]:
    """A program that keeps every GPU busy: stopped once, then killed in the middle of a kernel."""
    run_id = desk.start_command(*desk.program_of("work"))
    desk.wait_step(run_id, 3)
    busy = ",".join(desk.classes(run_id))
    [main] = desk.trainers(run_id)
    at = time.time()
    processes.send(main, signal.SIGSTOP)
    record = desk.verdict_at(run_id)
    desk.wait("it runs again", lambda: desk.run(run_id)["verdict"] == "running", 40.0)
    rows = [
        Row("SIGSTOP", "hang, stopped_process", _got(record), read_at(record) - at, time.time() - at, busy, "continued")
    ]
    at = time.time()
    processes.send(main, signal.SIGKILL)
    desk.wait_verdict(run_id, "crash", "killed_externally")
    told = next(r for r in desk.records(run_id, "verdict") if r["cause"] == "killed_externally")
    again = desk.next_step_at(run_id, 2)
    freed = desk.proven(run_id)
    rows.append(
        Row("SIGKILL in mid kernel", "crash, killed_externally", _got(told), read_at(told) - at, again - at, freed)
    )
    _end(desk, run_id)
    return rows


def failures(desk: Desk) -> list[Row]:
    """Programs that fail on the GPU by themselves after a few steps."""
    rows = []
    for kind, want in (
        ("oom", "crash, cuda_oom"),
        ("illegal", "crash, cuda_illegal_memory_access"),
        ("assert", "crash, device_side_assert"),
    ):
        run_id = desk.start_command(*desk.program_of("fail", kind))
        record = desk.verdict_at(run_id)
        run = desk.wait_final(run_id)
        rows.append(Row(kind, want, _got(record), gpus=desk.proven(run_id), note=f"{run['attempt']} attempts"))
    return rows


def taken(desk: Desk) -> list[Row]:
    """GPUs that somebody else uses before a start: memory held, and the seed's picture, 100 % at idle power."""
    rows = []
    for name, program, words in (("20 GiB held by another", "hold", ("20",)), ("foreign spin kernel", "spin", ())):
        other = desk.beside(program, *words)
        time.sleep(3.0)
        at = time.time()
        done = desk.cli("start", f"local:{desk.workspace}", "--detach", "--", *desk.program_of("work", "5"))
        waited = time.time() - at
        run = desk.get("/runs")["runs"][0]
        got = f"{run['verdict']}, {run['cause']}, exit {done.returncode}"
        classes = ",".join(desk.classes(run["id"]))
        other.kill()
        other.wait()
        rows.append(Row(name, "stale_process, foreign_process, exit 6", got, waited, gpus=classes))
    return rows


def leftover(desk: Desk) -> list[Row]:
    """A process of an earlier run still holds memory: it is ended before the next launch."""
    first = desk.start_command(*desk.program_of("work", "3"))
    desk.wait_final(first)
    token = {"DFLASH_RUN": f"{first}:1", "DFLASH_ATTEMPT_DIR": str(desk.run_dir(first) / "attempts/1")}
    left = desk.beside("hold", "20", env=token)
    at = time.time()
    run_id = desk.start_command(*desk.program_of("work", "3"))
    run = desk.wait_final(run_id)
    kinds = [record["type"] for record in desk.records(run_id, "action")]
    ended = left.poll() is not None and "EndStale" in kinds
    got = f"{run['verdict']}{', leftover ended' if ended else ''}"
    return [Row("leftover of an earlier run", "completed, leftover ended", got, next_step_s=time.time() - at)]


def missing_peer(desk: Desk) -> list[Row]:
    """NCCL, one rank never comes; with the limits that users have. The waiting GPU looks 100 % busy."""
    limits = desk.home / "limits.toml"
    limits.write_text(
        "[policy]\nsuspect_floor_s = 30.0\nconfirm_factor = 3.0\nstacks_apart_s = 30.0\nworker_lost_s = 45.0\n"
    )
    place = f"local:{desk.workspace}"
    command = desk.program_of("allreduce", "40")
    done = desk.cli("start", place, "--detach", "--policy", "auto", "--config", str(limits), "--", *command)
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.split()[-1]
    desk.wait("step 40", lambda: (desk.run(run_id)["step"] or 0) >= 40, 90.0)
    at = time.time()
    time.sleep(10.0)
    classes = ",".join(desk.classes(run_id))
    record = desk.verdict_at(run_id, within_s=180.0)
    again = desk.next_step_at(run_id, 2)
    _end(desk, run_id)
    want = "hang, nccl_spin or partial_stall, nccl_spin"
    return [Row("NCCL peer missing", want, _got(record), read_at(record) - at, again - at, classes, _culprit(record))]


def races(desk: Desk) -> list[Row]:
    """The seed's two faults: the tracing flag shared by all threads, and the lock that hid behind it."""
    rows = []
    for mitigation, want in (
        ("none", "partial_stall, fx_tracing_race or crash, fx_tracing_race"),
        ("tls-flag", "hang, compile_deadlock or running, none"),
    ):
        began = time.time()
        threads = ("--set", "layout.drafter_workers=4")  # the race needs threads that compile at the same time
        run_id = desk.start("--set", f'layout.race_mitigation="{mitigation}"', *threads, steps=MANY_STEPS)

        def told(run_id: str = run_id) -> bool:
            run = desk.run(run_id)
            return run["verdict"] != "starting" and (run["verdict"] != "running" or (run["step"] or 0) > 60)

        desk.wait(f"what becomes of {mitigation}", told, 150.0)
        run = desk.run(run_id)
        rows.append(
            Row(f"race mitigation {mitigation}", want, f"{run['verdict']}, {run['cause']}", time.time() - began)
        )
        _end(desk, run_id)
    return rows


def overhead(desk: Desk) -> list[Row]:
    """The same work with and without an agent beside it, in turns: what the agent costs."""
    command = desk.program_of("work", str(OVERHEAD_STEPS))
    watched, alone = [], []
    for _ in range(OVERHEAD_TURNS):
        alone.append(_speed(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        run_id = desk.start_command(*command)
        desk.wait_final(run_id)
        watched.append(_speed((desk.run_dir(run_id) / "attempts/1/train.log").read_text()))
    ratio = statistics.mean(watched) / statistics.mean(alone)
    spread = max(max(alone) / min(alone), max(watched) / min(watched)) - 1
    fits = "at least 0.999 within the spread"
    got = fits if ratio >= 0.999 - spread else "less"
    return [Row("throughput with the agent", fits, got, note=f"ratio {ratio:.5f}, spread {spread:.5f}")]


def _speed(log: str) -> float:
    """Steps a second; the first ones warm the clocks up."""
    seconds = [float(line.rpartition("s=")[2]) for line in log.splitlines() if line.startswith("step=")]
    return 1 / statistics.median(seconds[5:])


def _got(record: dict[str, object]) -> str:
    return f"{record['verdict']}, {record['cause']}"


def _culprit(record: dict[str, object]) -> str:
    findings = record.get("findings") or []
    assert isinstance(findings, list)
    return next((str(one["culprit"]) for one in findings if one.get("culprit")), "")


def _end(desk: Desk, run_id: str) -> None:
    if not desk.run(run_id)["final"]:
        desk.cli("stop", run_id, "--yes")
        desk.wait_final(run_id)


SCENES: dict[str, Callable[[Desk], list[Row]]] = {
    "first-step": first_step,
    "cures": cures,
    "signals": signals,
    "failures": failures,
    "taken": taken,
    "leftover": leftover,
    "missing-peer": missing_peer,
    "overhead": overhead,
    "races": races,
}
