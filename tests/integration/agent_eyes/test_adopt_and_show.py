"""Runs that somebody else started, and the pane that shows a log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.gpus import FakeGpus
from tests.integration.agent_eyes.stream import Peer, Toy, wait_for
from tests.integration.agent_eyes.test_agent import FOREVER, STEPS


@pytest.fixture
def foreign(workspace: Path, isolated_home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody's training run, not ours."""
    with open(workspace / "their.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-c", FOREVER], stdout=log, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def adopt(toy: Toy, **what: object) -> None:
    toy.body = {"kind": "adopted", "policy": {"preset": "observe"}, "adopt": what}
    assert toy.goal("run")["ok"]
    toy.ensure_agent()
    toy.follow()


def test_an_adopted_run_is_watched_by_its_log_and_its_end_is_unclear(
    toy: Toy, foreign: subprocess.Popen[bytes]
) -> None:
    adopt(toy, pid=foreign.pid, log=str(toy.workspace / "their.log"))
    wait_for("steps", lambda: [v for v in toy.peer.records("verdict") if v["verdict"] == "running"])
    assert b"step=1" in wait_for("its log", lambda: toy.peer.log(1))
    foreign.kill()
    foreign.wait()
    assert toy.final()["verdict"] == "ended_unclear"
    end = wait_for("the end", lambda: toy.peer.records("attempt_end"))[0]
    assert (end["code"], end["signal"]) == (None, None)


def test_an_adopted_run_that_is_gone_and_has_no_log_beside_a_stale_gpu(
    fake_gpus: FakeGpus, start_peer: Callable[..., Peer], workspace: Path
) -> None:
    fake_gpus.set(3, util=100.0)
    done = subprocess.Popen(["true"])
    done.wait()
    toy = Toy(start_peer(**fake_gpus.env()), workspace)
    toy.body = {"kind": "adopted", "gpus": "all", "policy": {"preset": "observe"}}
    toy.body["adopt"] = {"pid": done.pid, "log": str(workspace / "never.log")}
    assert toy.goal("run")["ok"]
    toy.ensure_agent()
    toy.follow()
    assert toy.final()["verdict"] == "no_log"
    found = wait_for(
        "the incident", lambda: [i for i in toy.peer.records("incident") if i["verdict"] == "stale_process"]
    )
    assert found[-1]["state"] == "open"
    assert "GPU 3" in found[-1]["sentence"]


def test_what_is_to_be_adopted_is_looked_for_before_a_run_is_made_of_it(
    start_peer: Callable[..., Peer], foreign: subprocess.Popen[bytes]
) -> None:
    peer = start_peer()
    assert peer.ask("look_for", pid=foreign.pid)["pid"] == foreign.pid
    done = subprocess.Popen(["true"])
    wait_for("a zombie", lambda: Path(f"/proc/{done.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert peer.ask("look_for", pid=done.pid)["pid"] is None, "a zombie trains nothing"
    done.wait()
    assert peer.ask("look_for", pid=done.pid)["pid"] is None
    missing = peer.ask("look_for", tmux="train")
    assert (missing["pid"], missing["sessions"]) == (None, [])
    assert peer.ask("tmux", argv=["new-session", "-d", "-s", "my train", "sleep", "600"])["rc"] == 0
    missing = peer.ask("look_for", tmux="train")
    assert (missing["pid"], missing["sessions"]) == (None, ["my train"])
    found = peer.ask("look_for", tmux="my train")
    assert b"sleep" in Path(f"/proc/{found['pid']}/cmdline").read_bytes()


def test_the_pane_starts_the_agent_and_shows_each_attempt_until_the_run_is_over(toy: Toy, agent_dir: Path) -> None:
    argv = [sys.executable, "-c", STEPS + "\nraise RuntimeError('dry')"]
    toy.body = {"policy": {"preset": "auto", "backoff_s": 0.2}}
    assert toy.goal("run", context={"argv": argv})["ok"]
    options = json.dumps({"tick_s": 0.3})
    pane = subprocess.run(
        [sys.executable, "-IS", str(agent_dir), "show", str(toy.run_dir)],
        stdout=subprocess.PIPE,
        timeout=100,
        env={**os.environ, "DFLASH_AGENT_OPTIONS": options},
        check=False,
    )
    text = pane.stdout.decode()
    assert pane.returncode == 0
    assert text.count("RuntimeError: dry") == 2
    assert text.index("attempt=1") < text.index("attempt=2")
    assert text.endswith("[dflash] the run is over: crash, cause rank_exception\n")


def pane_of(toy: Toy, agent_dir: Path) -> Callable[[str], bool]:
    """The run's session, as a start makes it; whether its live pane shows a text."""
    name = f"dflash-{toy.run_id}"
    command = [sys.executable, "-IS", str(agent_dir), "show", str(toy.run_dir)]
    session = ["new-session", "-d", "-s", name, "-x", "200", "-y", "50", *command]
    began = toy.peer.ask("tmux", argv=["-f", "/dev/null", "set", "-g", "remain-on-exit", "on", ";", *session])
    assert began["rc"] == 0, began

    def shows(text: str) -> bool:
        dead = toy.peer.ask("tmux", argv=["display-message", "-p", "-t", f"={name}:", "#{pane_dead}"])["out"]
        assert dead == "0\n", toy.peer.ask("tmux", argv=["capture-pane", "-p", "-t", f"={name}:"])["out"]
        return text in toy.peer.ask("tmux", argv=["capture-pane", "-p", "-S", "-", "-t", f"={name}:"])["out"]

    return shows


def test_a_pane_goes_on_after_the_last_word_and_shows_the_attempt_of_a_restart(toy: Toy, agent_dir: Path) -> None:
    argv = [sys.executable, "-c", STEPS + "\nraise RuntimeError('dry')"]
    toy.body = {"policy": {"preset": "auto", "max_restarts": 0}}
    assert toy.goal("run", context={"argv": argv})["ok"]
    shows = pane_of(toy, agent_dir)
    over = "[dflash] the run is over: crash, cause rank_exception"
    wait_for("the last word", lambda: shows(over))
    assert toy.goal("run", end_attempt=1)["ok"]
    toy.ensure_agent()
    wait_for("the next attempt", lambda: shows("[dflash] attempt 2"))
    wait_for("its steps", lambda: shows("attempt=2"))


def test_the_session_of_a_run_that_has_been_over_for_long_ends(
    start_peer: Callable[..., Peer], workspace: Path, no_devices: str, agent_dir: Path
) -> None:
    options = {"dev_nvidia_glob": no_devices, "tick_s": 0.3, "pane_keep_s": 3.0}
    toy = Toy(start_peer(DFLASH_AGENT_OPTIONS=json.dumps(options)), workspace)
    toy.start("pass")
    assert toy.final()["verdict"] == "completed"
    shows = pane_of(toy, agent_dir)
    wait_for("the last word", lambda: shows("the run is over: completed"))
    wait_for(
        "the session's end", lambda: toy.peer.ask("tmux", argv=["has-session", "-t", f"=dflash-{toy.run_id}"])["rc"]
    )
