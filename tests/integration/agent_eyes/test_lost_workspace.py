"""A run directory that is deleted or takes nothing, under a living trainer: watched, told and stopped all the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.agent.runtime import Runtime
from tests.integration.agent_eyes.stream import Peer, Toy, wait_for
from tests.integration.agent_eyes.test_agent import FOREVER
from tests.records import read_all


def trains(toy: Toy, **changes: Any) -> int:
    """Start the toy and wait until it makes steps; the pid of the trainer."""
    toy.start(FOREVER, **changes)
    toy.follow()
    wait_for("steps", lambda: [v for v in toy.peer.records("verdict") if v["verdict"] == "running"])
    return int(json.loads((toy.run_dir / "attempts/1/child.json").read_text())["pid"])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def notes(toy: Toy) -> list[str]:
    """The notes of the newest verdict."""
    return [note["slug"] for note in toy.peer.records("verdict")[-1]["notes"]]


def assert_stopped_as_asked(toy: Toy, pid: int) -> None:
    """The stop is taken, acknowledged, proven in the process table, and told to the end; nothing is launched."""
    answer = toy.goal("stop")
    assert answer["ok"], answer
    wait_for("the agent's word", lambda: [r for r in toy.peer.records("spec") if r["generation"] == 2])
    wait_for("the end", lambda: [v for v in toy.peer.records("verdict") if v["final"]])
    assert not alive(pid)
    last = toy.peer.records("verdict")[-1]
    assert (last["verdict"], last["attempt"]) == ("stopped", 1)
    outcome = wait_for("its outcome", lambda: [r for r in toy.peer.records("outcome") if r["type"] == "stop"])[0]
    assert outcome["ok"] is True and outcome["proof"]["set_empty"] is True
    ends = [(end["attempt"], end["verdict"]) for end in toy.peer.records("attempt_end")]
    assert ends == [(1, "stopped")]
    assert [r["attempt"] for r in toy.peer.records("action") if r["type"] == "Launch"] == [1]
    assert toy.final()["generation"] == 2
    wait_for("the agent to leave", lambda: not (toy.peer.ask("ensure_agent", **asked(toy)).get("pid")))


def asked(toy: Toy) -> dict[str, str]:
    return {"workspace": str(toy.workspace), "run_id": toy.run_id}


def told_once_in_order(toy: Toy) -> None:
    keys = [(record["epoch"], record["seq"]) for record in toy.peer.records()]
    assert keys == sorted(set(keys))
    by_epoch: dict[str, list[int]] = {}
    for epoch, seq in keys:
        by_epoch.setdefault(epoch, []).append(seq)
    for seqs in by_epoch.values():
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), "no gap"


@pytest.mark.parametrize("gone", ["run directory", ".dflash", "workspace"])
def test_a_stop_ends_a_trainer_whose_folder_was_deleted_and_makes_none_again(toy: Toy, gone: str) -> None:
    pid = trains(toy)
    lost = {"run directory": toy.run_dir, ".dflash": toy.workspace / ".dflash", "workspace": toy.workspace}[gone]
    shutil.rmtree(lost)
    wait_for("the note", lambda: "history_lost" in notes(toy) and "blind: records" in notes(toy))
    assert alive(pid)
    assert toy.peer.records("verdict")[-1]["verdict"] in ("running", "starting")
    assert_stopped_as_asked(toy, pid)
    assert not toy.run_dir.exists(), "what a person deleted stays deleted"
    told_once_in_order(toy)


def test_an_agent_that_comes_later_knows_the_trainer_whose_run_directory_is_gone(toy: Toy) -> None:
    pid = trains(toy)
    shutil.rmtree(toy.run_dir)
    wait_for("the note", lambda: "history_lost" in notes(toy))
    first = toy.peer.records()[-1]["epoch"]
    agent = int(json.loads((toy.private / "agent.json").read_text())["pid"])
    os.kill(agent, signal.SIGKILL)
    wait_for("another agent", lambda: toy.peer.records()[-1]["epoch"] > first)
    wait_for("its verdict", lambda: toy.peer.records("verdict")[-1]["epoch"] > first)
    assert "history_lost" in notes(toy) and alive(pid)
    assert_stopped_as_asked(toy, pid)
    told_once_in_order(toy)


def test_a_stream_whose_code_was_deleted_with_the_workspace_makes_room_for_one_that_can_start_an_agent(
    toy: Toy, agent_dir: Path
) -> None:
    pid = trains(toy)
    stream = Peer(toy.workspace / ".dflash" / "agent" / agent_dir.name)
    assert stream.ask("ping")["ok"]
    shutil.rmtree(toy.workspace)
    wait_for("the note", lambda: "history_lost" in notes(toy))
    agent = int(json.loads((toy.private / "agent.json").read_text())["pid"])
    os.kill(agent, signal.SIGKILL)
    wait_for("its death", lambda: Runtime.open().agent_holds(toy.run_id) is False)
    assert stream.ask("ensure_agent", **asked(toy))["error"]["code"] == "agent_not_started"
    wait_for("the stream to end", lambda: stream.process.poll() is not None)
    assert stream.close() == 0 and alive(pid)
    toy.ensure_agent()
    assert_stopped_as_asked(toy, pid)


def test_a_trainer_that_ends_by_itself_without_its_run_directory_is_not_started_again(toy: Toy) -> None:
    pid = trains(toy)
    shutil.rmtree(toy.run_dir)
    wait_for("the note", lambda: "history_lost" in notes(toy))
    os.kill(pid, signal.SIGSEGV)
    wait_for("its end", lambda: toy.peer.records("attempt_end"))
    wait_for("more looks", lambda: len([r for r in toy.peer.records("observation") if r["obs"].get("exit")]) > 10)
    assert [r["attempt"] for r in toy.peer.records("action") if r["type"] == "Launch"] == [1]
    assert not toy.run_dir.exists()
    toy.goal("stop")
    assert toy.final()["generation"] == 2


def test_records_that_the_workspace_refuses_are_streamed_on_and_come_home_later(
    toy: Toy, start_peer: Callable[..., Peer]
) -> None:
    trains(toy)
    folder = toy.run_dir / "records"
    folder.rename(toy.run_dir / "records.away")
    folder.touch()
    wait_for("the note", lambda: "blind: records" in notes(toy))
    seen = len(toy.peer.records())
    wait_for("more records", lambda: len(toy.peer.records()) > seen + 5)
    late = start_peer()
    cursor = {key: toy.peer.records()[2][key] for key in ("epoch", "seq")}
    assert late.ask("follow", **asked(toy), cursor=cursor)["ok"]
    folder.unlink()
    (toy.run_dir / "records.away").rename(folder)
    wait_for("the workspace to have them", lambda: "blind: records" not in notes(toy))
    assert toy.goal("stop")["ok"]
    assert toy.final()["verdict"] == "stopped"
    wait_for("the end", lambda: [v for v in toy.peer.records("verdict") if v["final"]])
    told_once_in_order(toy)
    home = [(record["epoch"], record["seq"]) for record in read_all(str(folder))]
    assert home == [(record["epoch"], record["seq"]) for record in toy.peer.records()]
    wait_for("the other reader's end", lambda: [v for v in late.records("verdict") if v["final"]])
    followed = [record["seq"] for record in late.records()]
    assert followed == list(range(followed[0], followed[0] + len(followed))), "from its cursor on, or from the start"
    assert not list((toy.private / "records").glob("*.jsonl"))
