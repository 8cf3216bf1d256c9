"""The daemon as a process, over the transport of this machine and the real agent: alone, killed, ended, told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dflash_supervise.config import Settings, load
from dflash_supervise.daemon import identity, spawn
from tests.unit.alerts.receiver import Receiver, receiving

Doc = dict[str, Any]

WITHIN_S = 60.0
POLICY = (
    "[policy]\npreset = 'auto'\nsuspect_floor_s = 3\nconfirm_factor = 2\nstart_silent_s = 20\nbackoff_s = 0.3\n"
    "grace_s = 2\nstacks_apart_s = 1\n"
)
TRAINER = """
import sys, time
began = int(open(sys.argv[1]).read()) if len(sys.argv) > 1 and __import__("os").path.exists(sys.argv[1]) else 0
open(sys.argv[1], "w").write(str(began + 1))
for step in range(1, 200):
    print(f"step={step} loss={3 / step:.4f} tok/s=100", flush=True)
    time.sleep(0.2)
    if began == 0 and step == 12:
        raise RuntimeError("injected fault")
    if began >= 1 and step == 20:
        break
"""


@pytest.fixture
def slack() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def settings(isolated_home: Path, slack: Receiver) -> Iterator[Settings]:
    file = isolated_home / "config" / "dflash-supervise" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"[daemon]\nport = 0\n[slack]\nwebhook = '{slack.url}'\n"
        f"[alerts]\nallow_loopback_http = true\ninterval_s = 0.1\n{POLICY}"
    )
    found = load()
    yield found
    running = spawn.running(found)
    if running is not None:
        os.kill(int(running["pid"]), signal.SIGTERM)


def api(settings: Settings) -> httpx.Client:
    url = json.loads(settings.daemon_file.read_text())["url"]
    token = settings.token_file.read_text().strip()
    return httpx.Client(
        base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=20
    )


def until(what: str, holds: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found = holds()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {within_s:.0f} s: {what}")


def start(settings: Settings, workspace: Path, *command: str, **more: Any) -> Doc:
    body = {"target": f"local:{workspace}", "command": list(command), "gpus": "none", "no_tmux": True, **more}
    with api(settings) as client:
        answer = client.post("/runs", json=body)
        assert answer.status_code == 202, answer.text
        path = f"/operations/{answer.json()['operation']}"
        found: Doc = until("the start ends", lambda: (d := client.get(path).json())["state"] != "running" and d)
        return found


def run_of(settings: Settings, run_id: str) -> Doc:
    with api(settings) as client:
        return dict(client.get(f"/runs/{run_id}").json())


def records(settings: Settings, run_id: str) -> list[Doc]:
    with api(settings) as client:
        return list(client.get(f"/runs/{run_id}/records", params={"limit": 5000}).json()["records"])


def kill(settings: Settings, number: int) -> None:
    pid = int(json.loads(settings.daemon_file.read_text())["pid"])
    os.kill(pid, number)
    until("the daemon is gone", lambda: identity.start_ticks(pid) is None)


def test_a_daemon_comes_up_once_in_its_own_session_with_private_files(settings: Settings) -> None:
    first = spawn.ensure_running(settings)
    assert spawn.ensure_running(settings) == first
    assert os.getsid(first["pid"]) == first["pid"]
    for path in (settings.token_file, settings.daemon_file, settings.log_file, settings.state_dir / "store.sqlite3"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    again = subprocess.run(
        [sys.executable, "-m", "dflash_supervise.daemon"], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert again.returncode == 6 and f"pid {first['pid']}" in again.stderr
    httpx.get(f"{first['url']}/healthz", trust_env=False).raise_for_status()
    refused = httpx.get(f"{first['url']}/api/v1/runs", trust_env=False)
    assert refused.status_code == 401


def test_sigterm_ends_it_cleanly_and_takes_its_file_away(settings: Settings) -> None:
    spawn.ensure_running(settings)
    kill(settings, signal.SIGTERM)
    assert not settings.daemon_file.exists()
    assert "ended; every run goes on" in settings.log_file.read_text()
    assert spawn.running(settings) is None


def test_a_taken_port_is_refused_with_the_name_of_who_has_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        number = other.getsockname()[1]
        monkeypatch.setenv("DFLASH_SUPERVISE_DAEMON_PORT", str(number))
        with pytest.raises(spawn.NotStarted, match=rf"port {number} is taken by pid {os.getpid()}"):
            spawn.ensure_running(load())


def test_a_wrong_setting_ends_with_2_and_names_file_and_key(settings: Settings) -> None:
    Path(settings.files[0]).write_text("[daemon]\nprot = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "dflash_supervise.daemon"], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert done.returncode == 2
    assert settings.files[0] in done.stderr and "did you mean port?" in done.stderr


def test_a_cured_crash_and_a_clean_end_are_three_messages_and_every_record_is_there(
    settings: Settings, workspace: Path, slack: Receiver
) -> None:
    spawn.ensure_running(settings)
    (workspace / "t.py").write_text(TRAINER)
    done = start(settings, workspace, sys.executable, "t.py", "count", name="demo")
    assert done["state"] == "done", done
    run_id = done["run_id"]
    run = until("the run is over", lambda: (r := run_of(settings, run_id))["final"] and r)
    assert (run["verdict"], run["attempt"], run["exit_status"]) == ("completed", 2, 0), run
    until("Slack has heard it", lambda: len(slack.got) >= 3)
    texts = [document["text"] for document in slack.documents]
    assert len(texts) == 3, texts
    assert "started" in texts[0]
    assert "RuntimeError: injected fault" in texts[1] and "restarting (1 of" in texts[1]
    assert "done" in texts[2]
    stored = [(r["epoch"], r["seq"]) for r in records(settings, run_id)]
    assert stored == sorted(stored) and len(set(stored)) == len(stored)
    with api(settings) as client:
        log = client.get(f"/runs/{run_id}/log", params={"attempt": 1}).json()["text"]
        incidents = client.get("/incidents").json()["incidents"]
    assert "RuntimeError: injected fault" in log
    assert [(one["cause"], one["state"]) for one in incidents] == [("rank_exception", "resolved")]


def test_kill_9_again_and_again_loses_no_record_and_doubles_none(
    settings: Settings, workspace: Path, slack: Receiver
) -> None:
    spawn.ensure_running(settings)
    (workspace / "t.py").write_text(TRAINER)
    run_id = start(settings, workspace, sys.executable, "t.py", "count")["run_id"]
    for _ in range(6):
        time.sleep(0.7)  # the run goes on meanwhile; each kill hits it somewhere else
        kill(settings, signal.SIGKILL)
        spawn.ensure_running(settings)
    run = until("the run is over", lambda: (r := run_of(settings, run_id))["final"] and r)
    assert (run["verdict"], run["attempt"]) == ("completed", 2), run
    folder = workspace / ".dflash" / "runs" / run_id / "records"
    on_host = [
        (one["epoch"], one["seq"])
        for path in sorted(folder.glob("*.jsonl"))
        for one in map(json.loads, path.read_text().splitlines())
    ]
    until("all is stored", lambda: len(records(settings, run_id)) >= len(on_host))
    assert [(r["epoch"], r["seq"]) for r in records(settings, run_id)] == on_host
    until("Slack has heard it", lambda: len({d["text"] for d in slack.documents}) >= 3)
    assert len({document["text"] for document in slack.documents}) == 3, "only a repetition may come twice"
    train_log = (workspace / ".dflash" / "runs" / run_id / "attempts" / "1" / "train.log").read_text()
    with api(settings) as client:
        assert client.get(f"/runs/{run_id}/log", params={"attempt": 1, "offset": 0}).json()["text"] == train_log


def test_a_stop_is_delivered_acknowledged_and_told_once(settings: Settings, workspace: Path, slack: Receiver) -> None:
    spawn.ensure_running(settings)
    run_id = start(settings, workspace, "/bin/sleep", "600")["run_id"]
    with api(settings) as client:
        answer = client.post(f"/runs/{run_id}/goal", json={"want": "stop", "yes": True}).json()
    assert answer == {"generation": 2, "delivered": True, "acknowledged": True}
    run = until("the run is over", lambda: (r := run_of(settings, run_id))["final"] and r)
    assert (run["verdict"], run["exit_status"]) == ("stopped", 103)
    until("Slack has heard it", lambda: len(slack.got) >= 2)
    assert ["stopped by a person" in d["text"] for d in slack.documents] == [False, True]


@pytest.mark.parametrize("whole", [False, True], ids=["run directory", "workspace"])
def test_a_stop_reaches_a_run_whose_folder_was_deleted(settings: Settings, workspace: Path, whole: bool) -> None:
    spawn.ensure_running(settings)
    run_id = start(settings, workspace, "/bin/sleep", "600")["run_id"]
    run_dir = workspace / ".dflash" / "runs" / run_id
    pid = json.loads((run_dir / "attempts" / "1" / "child.json").read_text())["pid"]
    shutil.rmtree(workspace if whole else run_dir)
    until("it is told", lambda: "history_lost" in [note["slug"] for note in run_of(settings, run_id)["notes"]])
    assert Path(f"/proc/{pid}").exists() and not run_of(settings, run_id)["final"]
    with api(settings) as client:
        answer = client.post(f"/runs/{run_id}/goal", json={"want": "stop", "yes": True}).json()
    assert answer == {"generation": 2, "delivered": True, "acknowledged": True}
    run = until("the run is over", lambda: (r := run_of(settings, run_id))["final"] and r)
    assert (run["verdict"], run["attempt"], run["exit_status"]) == ("stopped", 1, 103)
    assert not Path(f"/proc/{pid}").exists() and not run_dir.exists()


def test_a_second_start_on_the_workspace_of_a_live_run_is_refused(settings: Settings, workspace: Path) -> None:
    spawn.ensure_running(settings)
    first = start(settings, workspace, "/bin/sleep", "600")["run_id"]
    second = start(settings, workspace, "/bin/sleep", "600")
    assert second["state"] == "failed" and second["error"]["exit_code"] == 6
    assert first in second["error"]["message"]
    third = start(settings, workspace, "/bin/sleep", "600", replace=True)
    assert third["state"] == "done", third
    assert run_of(settings, first)["verdict"] == "stopped"
    with api(settings) as client:
        client.post(f"/runs/{third['run_id']}/goal", json={"want": "stop", "yes": True})
    until("it has ended", lambda: run_of(settings, third["run_id"])["final"])
