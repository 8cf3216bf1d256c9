"""The keeper as parent and witness, with real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from dflash_supervise.agent.launch import lock_blockers, reap
from dflash_supervise.agent.proc import is_alive, read_stat, signal_process
from dflash_supervise.agent.runtime import lock_held, take_lock, workspace_lock_name
from tests.integration.agent_hands.bench import Bench, end, read, until

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@pytest.mark.parametrize(
    ("source", "code", "number"),
    [
        ("raise SystemExit(0)", 0, None),
        ("raise SystemExit(7)", 7, None),
        ("{}['lr']", 1, None),
        ("import os; os.kill(os.getpid(), 9)", None, signal.SIGKILL),
        ("import os; os.kill(os.getpid(), 11)", None, signal.SIGSEGV),
        ("import os; os.kill(os.getpid(), 15)", None, signal.SIGTERM),
        ("import os; os.abort()", None, signal.SIGABRT),
    ],
)
def test_the_end_is_told_exactly(bench: Bench, source: str, code: int | None, number: int | None) -> None:
    bench.python(source)
    bench.launch()
    end_told = bench.wait_exit()
    assert (end_told["code"], end_told["signal"], end_told["exec_error"]) == (code, number, None)
    assert end_told["pid"] == bench.child()["pid"]
    assert end_told["ran_s"] >= 0 and end_told["maxrss_kb"] > 1000 and end_told["oom_kills"] == 0
    assert read(Path(bench.runtime.exit_copy(bench.run_id, 1))) == end_told
    until(lambda: bench.log()[-1].startswith("[dflash] ended "), "a footer")
    assert f"code={code} signal={None if number is None else int(number)} after=" in bench.log()[-1]


def test_a_traceback_lies_between_header_and_footer(bench: Bench) -> None:
    bench.python("{}['lr']")
    bench.launch()
    bench.wait_exit()
    until(lambda: len(bench.log()) >= 4 and "ended" in bench.log()[-1], "a footer")
    assert bench.log()[0].startswith(f"[dflash] run={bench.run_id} attempt=1 started=")
    assert bench.log()[1] == "Traceback (most recent call last):"
    assert bench.log()[-2] == "KeyError: 'lr'"


def test_a_missing_command_is_127_and_named(bench: Bench) -> None:
    bench.context(["no-such-trainer", "--lr", "1"])
    bench.launch()
    told = bench.wait_exit()
    assert told["code"] == 127
    assert told["exec_error"] == "cannot run no-such-trainer: No such file or directory", "for a person, not for errno"
    bench.wait_line("[dflash] not started: cannot run no-such-trainer")
    assert bench.log()[0].endswith("argv=no-such-trainer --lr 1")


def test_a_file_that_is_not_executable_is_126(bench: Bench) -> None:
    script = bench.workspace / "train.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o600)
    bench.context(["./train.sh"])
    bench.launch()
    told = bench.wait_exit()
    assert told["code"] == 126 and "Permission denied" in told["exec_error"]


def test_a_missing_working_directory_is_126_and_named(bench: Bench) -> None:
    bench.context(["true"], cwd="/nowhere/at/all")
    bench.launch()
    told = bench.wait_exit()
    assert told["code"] == 126 and "working directory /nowhere/at/all" in told["exec_error"]


def test_the_header_is_in_the_log_before_the_command_runs(bench: Bench) -> None:
    bench.context(["sh", "-c", 'head -n 1 "$DFLASH_ATTEMPT_DIR/train.log"'])
    bench.launch()
    bench.wait_exit()
    assert bench.log()[0].startswith("[dflash] run=") and bench.log()[1] == bench.log()[0]


def test_secrets_in_the_command_line_stay_out_of_the_header(bench: Bench) -> None:
    bench.context(["true", "--api-key", "sesame", "hub_token=open", "--lr=3"])
    bench.launch()
    bench.wait_exit()
    assert "sesame" not in bench.log()[0] and "token=open" not in bench.log()[0]
    assert bench.log()[0].endswith("--lr=3")


def test_the_environment_is_the_frozen_one_and_the_attempts_own_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = {"PATH": os.environ["PATH"], "HF_HOME": "/data/a b", "TMUX": "/tmp/t,1,0", "TMUX_PANE": "%1", "EMPTY": ""}
    bench.context(["/usr/bin/env", "-0"], env=frozen)
    bench.environ["STRAY"] = "of the agent"
    bench.launch(gpus=("GPU-b", "GPU-a"))
    bench.wait_exit()
    body = (bench.attempt() / "train.log").read_bytes().split(b"\n", 1)[1].rsplit(b"[dflash]", 1)[0]
    assert dict(entry.decode().split("=", 1) for entry in body.split(b"\0") if entry) == {
        "PATH": os.environ["PATH"],
        "HF_HOME": "/data/a b",
        "EMPTY": "",
        "DFLASH_RUN": f"{bench.run_id}:1",
        "DFLASH_ATTEMPT_DIR": str(bench.attempt()),
        "DFLASH_OUTPUT_DIR": str(bench.workspace / "runs" / bench.run_id),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "SPT_NOENV": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a",
    }


def test_the_trainer_gets_a_clean_process(bench: Bench) -> None:
    bench.python(
        "import json, os, signal\n"
        "print(json.dumps({'fds': sorted(os.listdir('/proc/self/fd'), key=int)[:-1],"
        " 'stdin': os.readlink('/proc/self/fd/0'), 'out': os.readlink('/proc/self/fd/1'),"
        " 'err': os.readlink('/proc/self/fd/2'), 'umask': os.umask(0), 'cwd': os.getcwd(),"
        " 'leads': os.getsid(0) == os.getpid() == os.getpgrp(),"
        " 'oom': int(open('/proc/self/oom_score_adj').read()),"
        " 'mask': open('/proc/self/status').read().split('SigBlk:')[1].split()[0],"
        " 'hup': signal.getsignal(signal.SIGHUP) is signal.SIG_DFL}))"
    )
    bench.launch(gpus=("GPU-a",))
    bench.wait_exit()
    told = json.loads(bench.log()[1])
    log = str(bench.attempt() / "train.log")
    assert told["fds"] == ["0", "1", "2"]  # no lock, gate or pipe of ours
    assert (told["stdin"], told["out"], told["err"]) == ("/dev/null", log, log)
    assert told["umask"] == 0o027 and told["cwd"] == str(bench.workspace) and told["leads"]
    assert told["oom"] >= 500 and int(told["mask"], 16) == 0 and told["hup"]


def test_a_hangup_ends_neither_keeper_nor_trainer_and_the_end_is_still_exact(bench: Bench) -> None:
    bench.python("import os, time\nwhile not os.path.exists('go'): time.sleep(.02)\nraise SystemExit(7)")
    bench.launch()
    bench.wait_child()
    assert signal_process(*bench.keeper_key(), signal.SIGHUP)
    time.sleep(0.2)
    assert is_alive(*bench.keeper_key()) and is_alive(*bench.main_key())
    (bench.workspace / "go").touch()
    assert bench.wait_exit()["code"] == 7


def test_sigterm_for_the_keeper_reaches_the_trainer(bench: Bench) -> None:
    bench.python(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "print('up', flush=True)\ntime.sleep(600)"
    )
    bench.launch()
    bench.wait_line("up")
    assert signal_process(*bench.keeper_key(), signal.SIGTERM)
    assert bench.wait_exit()["code"] == 143


def test_the_workspace_lock_of_another_keeper_is_respected_and_named(bench: Bench) -> None:
    path = bench.runtime.lock_path(workspace_lock_name(str(bench.workspace)))
    owner = {"run": "other-run", "attempt": 3, "pid": os.getpid(), "start_ticks": 1}
    lock = take_lock(path, owner)
    assert lock is not None
    bench.context(["touch", "ran"])
    bench.launch()
    told = bench.wait_exit()
    assert told["code"] == 6 and "run other-run attempt 3" in told["exec_error"] and bench.child() == {}
    assert lock_blockers(bench.runtime, bench.run_id, str(bench.workspace), ()) != ()
    assert not (bench.workspace / "ran").exists()
    lock.release()


def test_locks_are_held_until_the_last_descendant_is_gone(bench: Bench) -> None:
    bench.context(["sh", "-c", "setsid sleep 600 & echo $!"])
    bench.launch(gpus=("GPU-a",))
    bench.wait_exit()
    paths = [bench.runtime.lock_path(n) for n in (workspace_lock_name(str(bench.workspace)), "gpu-GPU-a.lock")]
    assert [lock_held(path) for path in paths] == [True, True]
    assert read(Path(paths[0]))["run"] == bench.run_id
    stat_of_child = read_stat(int(bench.log()[1]))
    assert stat_of_child is not None and stat_of_child.ppid == bench.keeper_key()[0]  # adopted, not lost to init
    end(*stat_of_child.key)
    until(lambda: [lock_held(path) for path in paths] == [False, False], "the locks are free")
    assert bench.runtime.keeper_holds(bench.run_id, 1) is True  # it stays as guardian


def test_the_end_is_told_also_when_the_workspace_was_deleted(bench: Bench) -> None:
    bench.python("import os, time\nwhile os.path.exists('stay'): time.sleep(.02)\nraise SystemExit(7)")
    (bench.workspace / "stay").touch()
    bench.launch()
    bench.wait_child()
    keeper = bench.keeper_key()
    subprocess.run(["rm", "-rf", str(bench.workspace)], check=True)
    until(lambda: read(Path(bench.runtime.exit_copy(bench.run_id, 1))), "the copy in the runtime folder")
    assert read(Path(bench.runtime.exit_copy(bench.run_id, 1)))["code"] == 7
    until(lambda: not is_alive(*keeper), "no run directory needs no guardian")


def test_an_end_that_no_disk_took_is_written_when_there_is_room_and_the_keeper_stays_for_it(bench: Bench) -> None:
    bench.python("import os, time\nwhile not os.path.exists('go'): time.sleep(.02)\nraise SystemExit(7)")
    bench.launch()
    bench.wait_child()
    keeper, main, endless = bench.keeper_key(), bench.main_key(), resource.RLIM_INFINITY
    # Every write of the keeper fails, as on one full disk for both folders; and it has a reason to leave.
    resource.prlimit(keeper[0], resource.RLIMIT_FSIZE, (0, endless))
    (bench.run_dir / "final.json").write_text("{}")
    (bench.workspace / "go").touch()
    until(lambda: read_stat(main[0]) is None, "the trainer is reaped")
    time.sleep(2.5)  # longer than a keeper waits before it looks whether it is needed
    copy = Path(bench.runtime.exit_copy(bench.run_id, 1))
    assert is_alive(*keeper) and not copy.exists() and bench.exit() == {}
    until(lambda: not [*bench.attempt().glob("*.tmp"), *copy.parent.glob("*.tmp")], "no half file is left")
    resource.prlimit(keeper[0], resource.RLIMIT_FSIZE, (endless, endless))
    until(lambda: not is_alive(*keeper), "the keeper has told it and left")
    assert (bench.exit()["code"], bench.exit()["pid"]) == (7, main[0]) and read(copy) == bench.exit()


def test_a_keeper_whose_folders_are_both_gone_does_not_stay_for_ever(bench: Bench) -> None:
    bench.python("import os, time\nwhile os.path.exists('stay'): time.sleep(.02)")
    (bench.workspace / "stay").touch()
    bench.launch()
    bench.wait_child()
    keeper = bench.keeper_key()
    subprocess.run(["rm", "-rf", bench.runtime.in_run(bench.run_id, ""), str(bench.workspace)], check=True)
    until(lambda: not is_alive(*keeper), "nobody could be told")


def test_files_of_an_attempt_are_closed_to_others(bench: Bench) -> None:
    bench.context(["true"])
    bench.launch()
    bench.wait_exit()
    for name in ("launch.json", "child.json", "exit.json", "train.log"):
        assert stat.S_IMODE((bench.attempt() / name).stat().st_mode) == 0o600
    assert "env" not in read(bench.attempt() / "launch.json")


def test_a_missing_agent_is_started_outside_of_the_trainers_tree(bench: Bench) -> None:
    bench.python(SLEEP)
    bench.launch()
    bench.wait_line("up")
    bench.let_agent_lock_go()
    until(lambda: bench.runtime.agent_holds(bench.run_id), "an agent holds the lock")
    pid_file = Path(bench.runtime.in_run(bench.run_id, "stand-in.pid"))
    until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the agent has told its pid")
    agent = read_stat(int(pid_file.read_text()))
    assert agent is not None
    above, ancestors = agent.ppid, set()
    while above > 1 and above not in ancestors:
        ancestors.add(above)
        parent = read_stat(above)
        above = 0 if parent is None else parent.ppid
    assert bench.keeper_key()[0] not in ancestors
    # Killed, it comes back; and what the trainer orphans still comes to the keeper.
    end(*agent.key)
    until(lambda: len(pid_file.read_text().split()) == 2, "the next agent")


def test_a_guardian_leaves_when_a_later_attempt_has_its_keeper(bench: Bench) -> None:
    bench.context(["true"])
    bench.launch(1)
    bench.wait_exit(1)
    first = bench.keeper_key(1)
    bench.python(SLEEP)
    bench.launch(2)
    bench.wait_child(2)
    until(lambda: not is_alive(*first), "the first keeper has left")
    assert is_alive(*bench.keeper_key(2))
    reap()
