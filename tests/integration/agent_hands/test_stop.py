"""Ending a set with real processes: everything of ours goes, nothing of others is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_supervise.agent.blackbox import BoxInputs, Sealing
from dflash_supervise.agent.proc import is_alive, read_stat, signal_process
from dflash_supervise.agent.procs import ProcessSet
from dflash_supervise.agent.proof import Baselines, look
from dflash_supervise.agent.runtime import boottime_s
from dflash_supervise.agent.stop import Stopper, send_continue
from dflash_supervise.core.facts import GpuReading, GpusReading, Missing, ProcessesReading, ProcessFact, ProofReading
from tests.integration.agent_hands.bench import NASTY, Bench, end, until

ROLES = ("plain", "setsid", "ignores_term", "noenv", "daemon", "orphan_noenv", "stopped", "respawns")
# Writes the number of each signal that can be caught; a SIGKILL or SIGSTOP is seen by its death or state.
BYSTANDER = """
import os, signal, sys, time
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, lambda n, _: open(sys.argv[1], "a").write("%d " % n))
open(sys.argv[2], "w").close()
while True: time.sleep(1)
"""


def start_nasty(bench: Bench) -> Path:
    ranks = bench.root / "ranks"
    ranks.mkdir()
    bench.context(
        [sys.executable, "-S", str(NASTY), "main", str(ranks), *ROLES],
        env={"PATH": os.environ["PATH"], "LAB_TEST": os.environ["LAB_TEST"]},
    )
    bench.launch()
    bench.wait_line("up")
    return ranks


def set_of(bench: Bench, number: int = 1) -> ProcessSet:
    return ProcessSet(bench.run_id, number, memory_path=bench.runtime.set_memory(bench.run_id, number))


def scan(bench: Bench, processes: ProcessSet, number: int = 1, *, full: bool = False) -> ProcessesReading:
    return processes.scan(bench.main_key(number), bench.keeper_key(number), now_s=boottime_s(), full=full)


def drive(bench: Bench, processes: ProcessSet, grace_s: float = 1.0, number: int = 1) -> Stopper:
    """A stop driven as the agent drives it, until it is finished."""
    stopper = Stopper(number, boottime_s(), grace_s, 10.0, rescan=lambda: scan(bench, processes, number, full=True))

    def tick() -> bool:
        stopper.tick(boottime_s(), scan(bench, processes, number))
        return stopper.finished

    until(tick, "the set is empty")
    return stopper


def ranks_alive(ranks: Path) -> list[str]:
    found = []
    for entry in ranks.iterdir():
        stat = read_stat(int(entry.name.rpartition(".")[2]))
        if stat is not None and stat.alive:
            found.append(entry.name)
    return found


def test_a_nasty_set_is_ended_with_none_left_and_the_main_end_is_told(bench: Bench) -> None:
    ranks = start_nasty(bench)
    processes = set_of(bench)
    assert len(scan(bench, processes).alive) == len(ROLES) + 1
    drive(bench, processes)
    assert ranks_alive(ranks) == []
    assert bench.wait_exit()["signal"] == signal.SIGTERM


def test_an_agent_that_comes_after_the_keeper_died_finds_what_an_earlier_one_saw(bench: Bench) -> None:
    ranks = start_nasty(bench)
    scan(bench, set_of(bench))
    end(*bench.keeper_key())
    end(*bench.main_key())
    later = set_of(bench)
    seen = scan(bench, later)
    assert seen.main_alive is False and seen.keeper_alive is False
    assert {"remembered", "token"} <= {p.via for p in seen.alive}
    drive(bench, later)
    assert ranks_alive(ranks) == []


def test_the_main_process_may_save_before_its_helpers_are_told(bench: Bench) -> None:
    bench.python(
        "import os, signal, subprocess, sys, time\n"
        "helper = subprocess.Popen(['sleep', '600'])\n"
        "def save(*_):\n"
        "    time.sleep(0.3)\n"
        "    print('helper', helper.poll(), flush=True)\n"
        "    helper.kill(); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(1)"
    )
    bench.launch()
    bench.wait_line("up")
    stopper = drive(bench, set_of(bench), grace_s=10.0)
    assert bench.wait_exit()["code"] == 143 and "helper None" in bench.log()
    assert stopper.tick(boottime_s(), ProcessesReading((), False, True)).killed is False


def test_bystanders_receive_no_signal(bench: Bench, tmp_path: Path) -> None:
    """A neighbour in its own session, one in ours (another job of the same shell), and one of another workspace."""
    elsewhere = "/else/.dflash/runs/other-run/attempts/1"
    foreign = {**os.environ, "DFLASH_RUN": "other-run:1", "DFLASH_ATTEMPT_DIR": elsewhere}
    neighbours = []
    for index, (env, own_session) in enumerate([(None, True), (None, False), (foreign, True)]):
        got, up = tmp_path / f"signals-{index}", tmp_path / f"up-{index}"
        command = [sys.executable, "-c", BYSTANDER, str(got), str(up)]
        neighbours.append((subprocess.Popen(command, env=env, start_new_session=own_session), got))
        until(up.exists, "the bystander is there")
    start_nasty(bench)
    drive(bench, set_of(bench))
    for process, got in neighbours:
        stat = read_stat(process.pid)
        assert stat is not None and stat.state in "SR" and not got.exists()
        process.kill()
        process.wait()


def test_a_terminal_server_with_our_token_outside_of_the_tree_is_named_and_left_alone(bench: Bench) -> None:
    bench.context(["sleep", "600"])
    bench.launch()
    bench.wait_child()
    env = {**os.environ, "DFLASH_RUN": f"{bench.run_id}:1", "TMUX_TMPDIR": str(bench.root)}
    tmux = ["tmux", "-L", "person", "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "-s", "work", "sleep 600"], env=env, check=True, timeout=30)
    panes = [*tmux, "list-panes", "-a", "-F", "#{pid} #{pane_pid}"]
    shown = subprocess.run(panes, env=env, capture_output=True, check=True, timeout=30)
    server, pane = (int(word) for word in shown.stdout.split())
    processes = set_of(bench)
    members = {p.pid for p in scan(bench, processes).members}
    assert {server, pane} & members == set()
    assert {server, pane} <= {p.pid for p in processes.bystanders}
    drive(bench, processes)
    assert all(stat is not None and stat.alive for stat in map(read_stat, (server, pane)))
    subprocess.run([*tmux, "kill-server"], env=env, check=True, timeout=30)


def test_a_stopped_process_gets_one_sigcont(bench: Bench) -> None:
    bench.python("import time\nprint('up', flush=True)\nwhile True: time.sleep(.1)")
    bench.launch()
    bench.wait_line("up")
    processes = set_of(bench)
    assert signal_process(*bench.main_key(), signal.SIGSTOP)
    until(lambda: "T" in {p.state for p in scan(bench, processes).members}, "state T")
    assert send_continue(scan(bench, processes)) == 1
    until(lambda: {p.state for p in scan(bench, processes).members} <= {"S", "R"}, "it runs again")
    assert send_continue(scan(bench, processes)) == 0


def test_what_survives_sigkill_is_named(bench: Bench) -> None:
    """A frozen process ends by no signal, another user's takes none: to the stop both look like this one."""
    bench.context(["sleep", "600"])
    bench.launch()
    bench.wait_child()
    seen = scan(bench, set_of(bench))
    ghost = ProcessFact(**{**seen.alive[0].__dict__, "start_ticks": seen.alive[0].start_ticks - 1, "via": "token"})
    stuck = ProcessesReading((ghost,), None, None)
    stopper = Stopper(1, 100.0, 5.0, 10.0)
    told = [stopper.tick(at, stuck) for at in (100.0, 105.0, 114.0, 115.0)]
    assert [t.unkillable for t in told] == [(), (), (), (ghost,)] and told[-1].signals_sent == 0
    assert not stopper.finished and is_alive(*bench.main_key())


def leftover_proof(bench: Bench, processes: ProcessSet, seen: ProcessesReading, attempt: int) -> ProofReading:
    return look(
        run_id="later-run",
        attempt=attempt,
        processes=seen,
        others=processes.others,
        gpus=GpusReading((GpuReading("GPU-a", 0, util_pct=0.0, mem_used_bytes=0, holders=()),)),
        wanted=None,
        baselines=Baselines(bench.runtime.baselines_path),
        runtime=bench.runtime,
        workspace=str(bench.workspace),
    )


def test_a_leftover_of_an_earlier_run_is_stale_only_when_nobody_answers_for_it(bench: Bench) -> None:
    bench.context(["sleep", "600"])
    bench.launch()
    bench.wait_child()
    later = ProcessSet("later-run", 0)

    def weigh() -> ProofReading:
        return leftover_proof(bench, later, later.scan(None, None, now_s=boottime_s(), full=True), 0)

    until(lambda: weigh().free is False, "it is seen")
    assert weigh().stale_ours == () and "is alive in this workspace" in weigh().blockers[0]
    end(*bench.keeper_key())
    assert weigh().stale_ours == ()  # its run still has an agent
    bench.let_agent_lock_go()
    proof = weigh()
    assert [p.pid for p in proof.stale_ours] == [bench.main_key()[0]] and "is a leftover" in proof.blockers[0]
    stopper = Stopper(1, boottime_s(), 1.0, 10.0)

    def tick() -> bool:
        stopper.tick(boottime_s(), ProcessesReading(weigh().stale_ours, None, None))
        return stopper.finished

    until(tick, "the leftover is gone")
    assert weigh().free is True and not is_alive(*bench.main_key())


def test_the_black_box_is_sealed_before_the_first_signal_and_holds_no_secret(bench: Bench) -> None:
    bench.python(
        "import faulthandler, os, signal, time\n"
        "faulthandler.register(signal.SIGUSR1, open(os.environ['DFLASH_ATTEMPT_DIR'] + '/stacks.txt', 'a'))\n"
        "print('HF_TOKEN=sesame step=3', flush=True)\n"
        "def stuck(): time.sleep(600)\n"
        "stuck()"
    )
    bench.launch()
    bench.wait_line("HF_TOKEN")
    from dflash_supervise.agent.stacks import Sampler

    processes = set_of(bench)
    inputs = BoxInputs(
        reason={"attempt": 1, "because": "hang"},
        processes=scan(bench, processes),
        gpus=Missing("no driver"),
        log_path=str(bench.attempt() / "train.log"),
        observations=('{"t_s":1}', '{"t_s":2}'),
        sampler=Sampler(str(bench.attempt()), *bench.main_key()),
    )
    box_dir = bench.attempt() / "blackbox"
    box = Sealing(str(box_dir), inputs)
    stopper = Stopper(1, boottime_s(), 1.0, 10.0, box=box)
    first = stopper.tick(boottime_s(), scan(bench, processes))
    assert first.signals_sent == 0 and not stopper.finished

    def tick() -> bool:
        told = stopper.tick(boottime_s(), scan(bench, processes))
        assert told.signals_sent == 0 or (box_dir / "sealed.json").exists()
        return stopper.finished

    until(tick, "the set is empty")
    names = {"reason.json", "processes.json", "gpus.json", "observations.jsonl", "log_tail.txt", "stacks.txt"}
    sealed = json.loads((box_dir / "sealed.json").read_text())["files"]
    assert sealed == dict.fromkeys(names, "ok")
    tail = (box_dir / "log_tail.txt").read_text()
    assert "HF_TOKEN=*** step=3" in tail and "sesame" not in "".join(p.read_text() for p in box_dir.iterdir())
    assert "in stuck" in (box_dir / "stacks.txt").read_text()
    assert json.loads((box_dir / "processes.json").read_text())["members"][0]["via"] == "main"
    assert (box_dir / "observations.jsonl").read_text() == '{"t_s":1}\n{"t_s":2}\n'
    # The next agent, which goes on with the stop, knows less: it leaves the box as it is.
    again = Sealing(str(box_dir), BoxInputs({}, Missing(""), Missing(""), str(bench.attempt() / "train.log")))
    again.start(boottime_s())
    until(lambda: again.sealed(0.0), "it is seen to be sealed")
    assert (box_dir / "observations.jsonl").read_text() == '{"t_s":1}\n{"t_s":2}\n'


@pytest.mark.parametrize("dead", ["trainer", "keeper"])
def test_a_stop_of_an_attempt_that_is_gone_is_finished_at_once(bench: Bench, dead: str) -> None:
    bench.context(["sleep", "600"])
    bench.launch()
    bench.wait_child()
    if dead == "keeper":
        end(*bench.keeper_key())
    end(*bench.main_key())
    stopper = Stopper(1, boottime_s(), 1.0, 10.0)
    told = stopper.tick(boottime_s(), scan(bench, set_of(bench)))
    assert stopper.finished and told.signals_sent == 0
