"""The tmux session of a run, by the real daemon over the transport of this machine: alive from the first moment on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_supervise.config import Settings, load
from dflash_supervise.daemon import spawn
from dflash_supervise.link.bundle import agent_bundle
from tests.integration.daemon.test_daemon import POLICY, api, run_of, start, until

TRAINER = "import time\nfor n in range(1, 4):\n    print(f'step={n} loss=1.0', flush=True)\n    time.sleep(0.2)\n"
CRASH = TRAINER + "raise RuntimeError('injected fault')\n"


@pytest.fixture
def settings(isolated_home: Path) -> Iterator[Settings]:
    file = isolated_home / "config" / "dflash-supervise" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f"[daemon]\nport = 0\n{POLICY}max_restarts = 0\n")
    found = load()
    yield found
    running = spawn.running(found)
    if running is not None:
        os.kill(int(running["pid"]), signal.SIGTERM)


def tmux(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["tmux", "-L", f"dflash-{os.getuid()}", *words], capture_output=True, text=True, check=False)


def pane(run_id: str, what: str) -> str:
    return tmux("display-message", "-p", "-t", f"=dflash-{run_id}:", f"#{{{what}}}").stdout.strip()


def shows(run_id: str, text: str) -> bool:
    """Whether the live pane shows it."""
    said = tmux("capture-pane", "-p", "-S", "-", "-t", f"=dflash-{run_id}:").stdout
    assert pane(run_id, "pane_dead") == "0", said
    return text in said


def code_of_pane(run_id: str) -> Path:
    argv = Path(f"/proc/{pane(run_id, 'pane_pid')}/cmdline").read_text().split("\0")
    return Path(argv[argv.index("show") - 1])


def goal(settings: Settings, run_id: str, **wanted: object) -> None:
    with api(settings) as client:
        answer = client.post(f"/runs/{run_id}/goal", json={**wanted, "yes": True})
        assert answer.status_code == 200, answer.text


def test_the_pane_lives_from_the_workspaces_own_code_wherever_the_links_agent_lies(
    settings: Settings, workspace: Path, isolated_home: Path
) -> None:
    spawn.ensure_running(settings)
    first, second = workspace / "one", workspace / "two"
    # The agent comes to lie in the runtime folder, and a link to a workspace that takes it finds it there.
    assert start(settings, workspace / "absent", "/bin/true")["state"] == "failed"
    kept = isolated_home / "run" / "dflash" / "agent" / agent_bundle().hash
    assert (kept / ".complete").exists()
    os.kill(int(json.loads(settings.daemon_file.read_text())["pid"]), signal.SIGKILL)
    spawn.ensure_running(settings)
    for folder in (first, second):
        folder.mkdir()
        (folder / "t.py").write_text(TRAINER + "time.sleep(600)\n")
        done = start(settings, folder, sys.executable, "t.py", no_tmux=False)
        assert done["state"] == "done", done
        until("the log is shown", lambda run_id=done["run_id"]: shows(run_id, "step=3"))
        assert code_of_pane(done["run_id"]) == folder / ".dflash" / "agent" / agent_bundle().hash
        goal(settings, done["run_id"], want="stop")
        until("it is over", lambda run_id=done["run_id"]: shows(run_id, "the run is over: stopped"))


def test_a_restart_is_shown_also_where_the_session_was_ended_or_its_pane_had_died(
    settings: Settings, workspace: Path
) -> None:
    spawn.ensure_running(settings)
    (workspace / "t.py").write_text(CRASH)
    run_id = start(settings, workspace, sys.executable, "t.py", no_tmux=False)["run_id"]
    until("the last word", lambda: shows(run_id, "the run is over: crash, cause rank_exception"))
    goal(settings, run_id, want="run", end_attempt=1)
    until("attempt 2 in the same pane", lambda: shows(run_id, "[dflash] attempt 2"))
    until("its end", lambda: (run := run_of(settings, run_id))["final"] and run["attempt"] == 2)
    tmux("kill-server")
    goal(settings, run_id, want="run", end_attempt=2)
    until("attempt 3 in a new session", lambda: shows(run_id, "[dflash] attempt 3"))
    until("its end", lambda: (run := run_of(settings, run_id))["final"] and run["attempt"] == 3)
    os.kill(int(pane(run_id, "pane_pid")), signal.SIGKILL)
    until("the pane is dead", lambda: pane(run_id, "pane_dead") == "1")
    goal(settings, run_id, want="run", end_attempt=3)
    until("attempt 4 in the revived pane", lambda: shows(run_id, "[dflash] attempt 4"))
    until("its end", lambda: (run := run_of(settings, run_id))["final"] and run["attempt"] == 4)
