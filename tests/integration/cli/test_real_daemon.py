"""Verbs against the real daemon, a real agent and a real process on this machine."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.program import run, terminal

pytestmark = pytest.mark.timeout(240)

TRAINER = """
import time
for n in range(1, 100000):
    print(f"step={n} loss={9 / n:.4f}", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def target(isolated_home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A workspace of this machine; on the way out every run of it is stopped, then the daemon."""
    monkeypatch.setenv("DFLASH_SUPERVISE_DAEMON_PORT", "0")
    yield f"local:{workspace}"
    found = run("ps", "--json", "-a")
    if found.returncode == 0:
        for one in json.loads(found.stdout)["runs"]:
            if not one["final"]:
                run("stop", one["id"], "--yes")
        run("daemon", "stop")


def start(target: str, *options: str) -> list[str]:
    return ["start", target, "--gpus", "none", "--no-tmux", *options, "--", sys.executable, "-c", TRAINER]


def test_a_run_is_started_looked_at_held_and_stopped(target: str) -> None:
    assert run("ps").returncode == 7
    began = run(*start(target, "--name", "b16"))
    assert began.returncode == 0, began.stderr
    run_id = began.stdout.strip()
    assert run_id.startswith("b16-") and "daemon started in the background" in began.stderr
    assert "b16 trains" in began.stderr

    assert run("status", "b16").returncode == 0
    assert "running" in run("ps").stdout
    assert run("wait", "b16", "--for", "step=5", "--timeout", "60").returncode == 0
    assert "step=" in run("logs", "b16", "-n", "3").stdout
    why = run("why", "b16").stdout
    assert "running" in why and "the host knows it" in why
    assert "attempt_start" in run("events", "b16").stdout
    assert run("doctor", target).returncode in (0, 5)

    again = run(*start(target))
    assert again.returncode == 6 and "--replace" in again.stderr, again.stderr

    assert run("hold", "b16", "--for", "1h").returncode == 0
    assert json.loads(run("status", "b16", "--json").stdout)["run"]["goal"]["want"] == "hold"
    assert run("release", "b16").returncode == 0

    assert run("stop", "b16").returncode == 2, "nobody can be asked"
    stopped = run("stop", "b16", "--yes")
    assert stopped.returncode == 0 and "stopped" in stopped.stderr, stopped.stderr
    assert run("status", "b16").returncode == 103
    assert run("wait", "b16").returncode == 103
    assert run("daemon", "stop").returncode == 0
    assert run("daemon", "status").returncode == 7


def test_restart_makes_the_next_attempt(target: str) -> None:
    assert run(*start(target, "--name", "r")).returncode == 0
    done = run("restart", "r", "--yes", "--wait", "--timeout", "90")
    assert done.returncode == 0, done.stderr
    assert json.loads(run("status", "r", "--json").stdout)["run"]["attempt"] == 2


def test_a_command_that_does_not_exist_is_named_and_ends_the_start(target: str) -> None:
    ran = run("start", target, "--gpus", "none", "--no-tmux", "--", "/nowhere/train")
    assert ran.returncode == 100, ran.stderr
    assert "command_not_found" in ran.stderr


def test_a_setting_that_the_trainer_does_not_know_is_a_failed_check_in_its_own_words(target: str) -> None:
    ran = run("start", target, "--gpus", "none", "--set", "prset=1")
    assert (ran.returncode, ran.stdout) == (5, ""), ran.stderr
    assert "error: --set prset=1: prset: unknown key (did you mean preset?)" in ran.stderr
    assert json.loads(run("ps", "--json", "-a").stdout)["runs"] == []


def test_a_wrong_target_is_explained_without_a_daemon(target: str) -> None:
    ran = run("start", "no-path")
    assert ran.returncode == 2 and "absolute path" in ran.stderr
    assert "daemon started" not in ran.stderr and run("ps").returncode == 7


def test_in_a_terminal_stop_asks_and_ctrl_c_only_detaches(target: str) -> None:
    assert run(*start(target, "--name", "t")).returncode == 0
    following = terminal("logs", "-f", "t")
    following.until("step=")
    following.interrupt()
    assert following.end() == 130
    assert "the run goes on; come back with: dflash-supervise logs -f t" in following.seen

    asking = terminal("stop", "t")
    asking.until("Stop t?")
    assert "no complete checkpoint is known" in asking.seen
    asking.type("n\n")
    assert asking.end() == 6
    assert run("status", "t").returncode == 0

    asking = terminal("stop", "t")
    asking.until("Stop t?")
    asking.type("y\n")
    assert asking.end() == 0
    assert run("status", "t").returncode == 103


def test_start_in_a_terminal_shows_what_moves(target: str) -> None:
    following = terminal(*start(target, "--name", "s", "--wait"))
    seen = following.until("step 1")
    assert "attempt 1 started" in seen
    following.interrupt()
    assert following.end() == 130
    assert "the run goes on" in following.seen
    assert run("status", "s").returncode == 0


def test_attach_names_the_session_that_really_exists(isolated_home: Path, target: str) -> None:
    began = run("start", target, "--name", "a", "--gpus", "none", "--", sys.executable, "-c", TRAINER)
    assert began.returncode == 0, began.stderr
    look = shlex.split(run("attach", "a", "--dry-run").stdout)
    assert look[-1] == f"=dflash-{began.stdout.strip()}"
    attached = terminal("attach", "a")
    attached.until("step=")
    attached.type("\x02d", pause_s=0.3)
    assert attached.end() == 0
    assert run("status", "a").returncode == 0


def test_a_second_supervisor_takes_the_run_over_and_the_first_takes_it_back(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = run(*start(target, "--name", "b16")).stdout.strip()
    with monkeypatch.context() as second:
        second.setenv("DFLASH_SUPERVISE_DAEMON_STATE_DIR", str(tmp_path / "second"))
        taken = run("adopt", target)
        assert (taken.returncode, taken.stdout.split()) == (0, [run_id]), taken.stderr
        assert "b16 is ours now" in taken.stderr
        assert run("hold", "b16").returncode == 0, "who owns it is obeyed"
        run("daemon", "stop")
    back = run("adopt", target)
    assert (back.returncode, back.stdout.split()) == (0, [run_id]), back.stderr
    assert run("stop", "b16", "--yes").returncode == 0


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (("--pid", "4194303"), "there is no process 4194303 on local"),
        (("--tmux", "nowhere"), "there is no tmux session nowhere"),
    ],
)
def test_adopting_what_is_not_there_ends_with_5_and_leaves_no_run(
    target: str, workspace: Path, what: tuple[str, str], said: str
) -> None:
    ran = run("adopt", target, *what)
    assert ran.returncode == 5 and said in ran.stderr, ran.stderr
    assert json.loads(run("ps", "--json", "-a").stdout)["runs"] == []
    assert not (workspace / ".dflash" / "runs").exists()
