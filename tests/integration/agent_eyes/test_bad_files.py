"""State files that hold something else, and disks that take nothing: the agent lives on, and a stop is a stop."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from dflash_supervise.agent.runtime import Runtime
from tests.integration.agent_eyes.stream import Peer, Toy, wait_for
from tests.integration.agent_eyes.test_lost_workspace import alive, asked, notes, trains

DEEP = "[" * 200_000
HUGE = "1" + "0" * 400


def agent_pid(toy: Toy) -> int:
    return int(json.loads((toy.private / "agent.json").read_text())["pid"])


def more_observations(toy: Toy, count: int = 4) -> None:
    seen = len(toy.peer.records("observation"))
    wait_for("more observations", lambda: len(toy.peer.records("observation")) >= seen + count)


@pytest.mark.parametrize(
    "text",
    [
        '{"attempt":1,"phase":"training","step":5,"checkpoint":[1]}',
        '{"attempt":1,"phase":"training","step":1e400}',
        DEEP,
    ],
)
@pytest.mark.parametrize("stop_file", [False, True])
def test_a_progress_file_that_holds_something_else_costs_no_agent_and_no_stop(
    toy: Toy, text: str, stop_file: bool
) -> None:
    pid = trains(toy)
    agent = agent_pid(toy)
    (toy.run_dir / "attempts/1/progress.json").write_text(text)
    wait_for(
        "the look", lambda: toy.peer.records("observation")[-1]["obs"]["progress"].get("reason", "").startswith("prog")
    )
    more_observations(toy)
    if stop_file:
        (toy.run_dir / "STOP").touch()
    else:
        assert toy.goal("stop")["ok"]
    wait_for("the end", lambda: [v for v in toy.peer.records("verdict") if v["final"]])
    assert not alive(pid)
    assert {record["agent"]["pid"] for record in toy.peer.records("agent_start")} == {agent}


def test_an_agent_that_finds_every_state_file_in_another_shape_lives_and_stops_the_trainer(toy: Toy) -> None:
    pid = trains(toy)
    first = toy.peer.records()[-1]["epoch"]
    # The keeper would bring it back at once, and shall find the files as they are then.
    keeper = int(json.loads((toy.run_dir / "attempts/1/child.json").read_text())["keeper_pid"])
    os.kill(keeper, signal.SIGSTOP)
    os.kill(agent_pid(toy), signal.SIGKILL)
    wait_for("its death", lambda: Runtime.open().agent_holds(toy.run_id) is False)
    wrong = {
        toy.run_dir / "brain.json": f'{{"memory":{{"last_at_s":{HUGE}}}}}',
        toy.run_dir / "machine.json": '{"gpus":5}',
        toy.run_dir / "attempts/1/launch.json": '{"at_s":"x"}',
        toy.run_dir / "attempts/1/exit.json": '{"code":0,"signal":null,"ran_s":"abc"}',
        toy.run_dir / "attempts/1/progress.json": DEEP,
        toy.private / "brain.json": DEEP,
        toy.private / "attempt.json": '{"a":1}',
        toy.private / "agent.json": '{"epoch":"zzz"}',
        toy.private / "exit-1.json": '{"code":0,"signal":null,"ran_s":"abc"}',
        toy.private / "set-1.json": '{"members":5}',
    }
    for path, text in wrong.items():
        path.write_text(text)
    (toy.run_dir / "attempts" / "\u00b2").mkdir()
    spec = dict(json.loads((toy.run_dir / "spec.json").read_text()), accepted="x", generation=9)
    (toy.run_dir / "spec.json").write_text(json.dumps(spec))
    toy.ensure_agent()
    wait_for("its observations", lambda: toy.peer.records("observation")[-1]["epoch"] > first)
    more_observations(toy)
    wait_for("the good spec at home", lambda: json.loads((toy.run_dir / "spec.json").read_text())["generation"] == 1)
    assert toy.peer.records("observation")[-1]["obs"]["attempt"]["main_pid"] == pid and alive(pid)
    os.kill(keeper, signal.SIGCONT)
    assert toy.goal("stop")["ok"]
    wait_for("the end", lambda: [v for v in toy.peer.records("verdict") if v["final"]])
    assert not alive(pid)
    assert len({record["epoch"] for record in toy.peer.records("agent_start")}) == 2
    assert toy.final()["verdict"] == "stopped"


def test_records_replaced_by_a_file_mute_no_new_follower_and_no_new_agent(
    toy: Toy, start_peer: Callable[..., Peer]
) -> None:
    trains(toy)
    folder = toy.run_dir / "records"
    folder.rename(toy.run_dir / "records.away")
    folder.symlink_to("spec.json")
    wait_for("the note", lambda: "blind: records" in notes(toy))
    first = toy.peer.records()[-1]["epoch"]
    os.kill(agent_pid(toy), signal.SIGKILL)
    wait_for("another agent", lambda: toy.peer.records()[-1]["epoch"] > first)
    late = start_peer()
    assert late.ask("follow", **asked(toy), cursor=None)["ok"]
    wait_for("records", lambda: [r for r in late.records("observation") if r["epoch"] > first])
    folder.unlink()
    (toy.run_dir / "records.away").rename(folder)


@pytest.fixture
def full() -> Iterator[Callable[[int], None]]:
    """Makes every write to a file fail for one process, as on a disk without room, until the test ends."""
    limited: list[int] = []

    def limit(pid: int) -> None:
        limited.append(pid)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    yield limit
    for pid in limited:
        if alive(pid):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def room_again(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_an_agent_without_room_for_a_byte_stops_its_trainer_and_tells_when_there_is_room(
    toy: Toy, full: Callable[[int], None]
) -> None:
    pid = trains(toy)
    agent = agent_pid(toy)
    told = (toy.private / "agent.json").read_text()
    full(agent)
    assert toy.goal("stop")["ok"]
    wait_for("the trainer's end", lambda: not alive(pid))
    time.sleep(11)  # it must have tried to tell that it lives
    assert alive(agent) and (toy.private / "agent.json").read_text() == told
    room_again(agent)
    wait_for("the end", lambda: [v for v in toy.peer.records("verdict") if v["final"]])
    assert toy.final()["verdict"] == "stopped"
    assert len(toy.peer.records("agent_start")) == 1


def test_a_stop_is_taken_where_the_runtime_folder_takes_none(toy: Toy) -> None:
    pid = trains(toy)
    (toy.private / "spec.json").unlink()
    (toy.private / "spec.json").mkdir()  # as good as no room: nothing can be put there
    answer = toy.goal("stop")
    assert answer["ok"], answer
    wait_for("the end", lambda: [v for v in toy.peer.records("verdict") if v["final"]])
    assert not alive(pid)


def test_what_could_not_be_started_again_is_not_restarted_and_says_so(toy: Toy) -> None:
    pid = trains(toy)
    (toy.private / "context.json").unlink()
    wait_for("the note", lambda: "no_context" in notes(toy))
    answer = toy.goal("run", end_attempt=1)
    assert (answer["ok"], answer["error"]["code"]) == (False, "no_context")
    assert "launch context of attempt 1 is gone from this host" in answer["error"]["message"]
    more_observations(toy)
    assert alive(pid)
    toy.generation = 1
    assert toy.goal("stop")["ok"]
    wait_for("the end", lambda: [v for v in toy.peer.records("verdict") if v["final"]])
    assert not alive(pid)
