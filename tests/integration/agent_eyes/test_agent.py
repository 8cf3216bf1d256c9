"""The agent for real: loop, keeper and a small foreign command, seen through the stream."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.agent_eyes.stream import Peer, Toy, wait_for

STEPS = """
import time
for step in range(1, 6):
    print(f"step={step} loss={1 / step:.3f}", flush=True)
    time.sleep(0.15)
"""
FOREVER = """
import time
step = 0
while True:
    step += 1
    print(f"step={step} loss=1.0", flush=True)
    time.sleep(0.2)
"""


def test_a_command_that_ends_well_completes_and_the_agent_leaves(toy: Toy) -> None:
    toy.start(STEPS)
    toy.follow()
    final = toy.final()
    assert (final["verdict"], final["generation"]) == ("completed", 1)
    wait_for("the agent to leave", lambda: toy.agent_pid() is None)
    wait_for("the last record", lambda: toy.peer.records("attempt_end"))
    kinds = [record["kind"] for record in toy.peer.records()]
    assert kinds[0] == "agent_start"
    assert kinds.index("action") < kinds.index("outcome") < kinds.index("attempt_end")
    assert [record["attempt"] for record in toy.peer.records("attempt_start")] == [1]
    verdicts = [record["verdict"] for record in toy.peer.records("verdict")]
    assert verdicts[-1] == "completed"
    assert "running" in verdicts
    log = wait_for("the footer", lambda: toy.peer.log(1) if b"ended code=0" in toy.peer.log(1) else None)
    assert log.startswith(b"[dflash] run=") and b"step=5" in log


def test_a_crash_is_recorded_with_its_code_and_key_line_and_restarted_once(toy: Toy) -> None:
    toy.start(STEPS + "\nraise RuntimeError('the pump is dry')")
    toy.follow()
    final = toy.final()
    assert final["verdict"] == "crash"
    wait_for("two ends", lambda: len(toy.peer.records("attempt_end")) == 2)
    first = toy.peer.records("attempt_end")[0]
    assert (first["verdict"], first["code"], first["step"]) == ("crash", 1, 5)
    assert first["key_line"] == "RuntimeError: the pump is dry"
    launches = [r["attempt"] for r in toy.peer.records("action") if r["type"] == "Launch"]
    assert launches == [1, 2], "the same failure twice without progress is not tried a third time"
    assert [i["attempt"] for i in toy.peer.records("incident") if i["state"] == "open"]


def test_exit_code_3_before_the_first_step_is_an_early_crash_and_not_repeated(toy: Toy) -> None:
    toy.start("import sys; print('no data here'); sys.exit(3)")
    toy.follow()
    assert toy.final()["verdict"] == "early_crash"
    end = wait_for("the end", lambda: toy.peer.records("attempt_end"))[0]
    assert (end["code"], end["attempt"]) == (3, 1)
    assert json.loads((toy.run_dir / "attempts/1/exit.json").read_text())["code"] == 3
    assert not (toy.run_dir / "attempts/2").exists()


def test_an_agent_that_is_killed_is_brought_back_by_the_keeper_and_goes_on(toy: Toy) -> None:
    toy.start(FOREVER)
    toy.follow()
    wait_for("steps", lambda: [v for v in toy.peer.records("verdict") if v["verdict"] == "running"])
    first = toy.agent_pid()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_for("another agent", lambda: toy.agent_pid() not in (None, first))
    wait_for("its first verdict", lambda: toy.peer.records("verdict")[-1]["epoch"].startswith("000002"))
    assert toy.goal("stop")["ok"]
    assert toy.final()["verdict"] == "stopped"
    assert [r["attempt"] for r in toy.peer.records("attempt_start")] == [1], "one attempt, told once"
    assert not (toy.run_dir / "attempts/2").exists()
    numbers = [(record["epoch"], record["seq"]) for record in toy.peer.records()]
    assert numbers == sorted(set(numbers))


def test_a_keeper_that_is_killed_is_noted_while_its_trainer_goes_on(toy: Toy) -> None:
    toy.start(FOREVER)
    toy.follow()
    wait_for("steps", lambda: [v for v in toy.peer.records("verdict") if v["verdict"] == "running"])
    child = json.loads((toy.run_dir / "attempts/1/child.json").read_text())
    os.kill(child["keeper_pid"], signal.SIGKILL)

    def noted() -> list[dict[str, Any]]:
        return [v for v in toy.peer.records("verdict") if "witness_lost" in [note["slug"] for note in v["notes"]]]

    assert wait_for("a note", noted)[0]["verdict"] == "running"
    assert Path(f"/proc/{child['pid']}").exists()
    assert toy.goal("stop")["ok"]
    assert toy.final()["verdict"] == "stopped"


def test_a_stop_is_proven_and_written_down_before_it_is_done(toy: Toy) -> None:
    toy.start(FOREVER)
    toy.follow()
    wait_for("steps", lambda: [v for v in toy.peer.records("verdict") if v["verdict"] == "running"])
    child = json.loads((toy.run_dir / "attempts/1/child.json").read_text())
    assert toy.goal("stop")["ok"]
    assert toy.final()["verdict"] == "stopped"
    assert not Path(f"/proc/{child['pid']}").exists()
    wait_for("its outcome", lambda: [r for r in toy.peer.records("outcome") if r["type"] == "stop"])
    action = next(r for r in toy.peer.records("action") if r["type"] == "Stop")
    outcome = next(r for r in toy.peer.records("outcome") if r["type"] == "stop")
    assert action["seq"] < outcome["seq"]
    assert outcome["ok"] is True and outcome["proof"]["set_empty"] is True
    assert (toy.run_dir / "attempts/1/blackbox/sealed.json").exists()
    assert [r["attempt"] for r in toy.peer.records("action") if r["type"] == "Launch"] == [1]


def test_a_stop_file_of_a_person_on_the_host_is_a_stop(toy: Toy) -> None:
    toy.start(FOREVER)
    wait_for("attempt 1", (toy.run_dir / "attempts/1/child.json").exists)
    (toy.run_dir / "STOP").touch()
    assert toy.final()["verdict"] == "stopped"


def test_a_stopped_run_goes_on_with_the_next_attempt_when_asked(toy: Toy) -> None:
    toy.start(FOREVER)
    wait_for("attempt 1", (toy.run_dir / "attempts/1/child.json").exists)
    toy.goal("stop")
    toy.final()
    assert toy.goal("run", end_attempt=1)["ok"]
    assert not (toy.run_dir / "final.json").exists()
    toy.ensure_agent()
    wait_for("attempt 2", (toy.run_dir / "attempts/2/child.json").exists)


def test_the_spec_of_another_hand_is_a_conflict_and_the_same_one_again_is_not(toy: Toy) -> None:
    toy.start(FOREVER)
    again = toy.peer.ask("spec", workspace=str(toy.workspace), spec=toy.spec("run", 1), based_on=0)
    assert again["ok"] and again["generation"] == 1
    stale = toy.peer.ask("spec", workspace=str(toy.workspace), spec=toy.spec("stop", 2), based_on=0)
    assert stale["error"]["code"] == "spec_conflict" and stale["error"]["generation"] == 1
    rival = toy.spec("stop", 2) | {"owner": "desk"}
    taken = toy.peer.ask("spec", workspace=str(toy.workspace), spec=rival, based_on=1)
    assert taken["error"]["code"] == "spec_conflict" and taken["error"]["owner"] == "laptop"
    assert toy.peer.ask("spec", workspace=str(toy.workspace), spec=rival, based_on=1, take_over=True)["ok"]
    toy.generation = 2
    assert toy.final()["verdict"] == "stopped"


def test_an_agent_for_a_run_that_is_over_leaves_at_once(toy: Toy) -> None:
    toy.start("print('step=1')")
    toy.final()
    wait_for("the agent to leave", lambda: toy.agent_pid() is None)
    epochs = sorted(path.name for path in (toy.run_dir / "records").iterdir())
    assert toy.ensure_agent()["started"] is False
    assert sorted(path.name for path in (toy.run_dir / "records").iterdir()) == epochs


def test_a_second_agent_for_the_same_run_leaves_at_once(toy: Toy) -> None:
    toy.start(FOREVER)
    first = toy.agent_pid()
    assert toy.ensure_agent()["started"] is False
    assert toy.agent_pid() == first


def test_attempts_that_were_seen_before_and_are_gone_forbid_a_launch(toy: Toy) -> None:
    toy.start(FOREVER, highest_attempt=7)
    toy.follow()
    found = wait_for("a verdict", lambda: toy.peer.records("verdict"))
    assert "history_lost" in [note["slug"] for note in found[-1]["notes"]]
    wait_for("more looks", lambda: len(toy.peer.records("observation")) > 5)
    assert not (toy.run_dir / "attempts/1").exists()


def test_an_agent_killed_between_intent_and_keeper_leaves_no_second_trainer(
    start_peer: Callable[..., Peer], workspace: Path
) -> None:
    options = json.dumps({"tick_s": 0.3, "failpoint": "after_intent@1"})
    toy = Toy(start_peer(DFLASH_AGENT_OPTIONS=options), workspace)
    argv = [sys.executable, "-c", STEPS]
    assert toy.goal("run", context={"argv": argv})["ok"]
    toy.peer.ask("ensure_agent", workspace=str(workspace), run_id=toy.run_id)
    wait_for("the intent", (toy.run_dir / "attempts/1/launch.json").exists)
    wait_for("the death of the agent", lambda: toy.agent_pid() is None)
    toy.ensure_agent()
    toy.follow()
    assert toy.final()["verdict"] == "completed"
    ends = wait_for("both ends", lambda: len(toy.peer.records("attempt_end")) == 2 and toy.peer.records("attempt_end"))
    assert [(end["attempt"], end["cause"]) for end in ends] == [(1, "launch_interrupted"), (2, "none")]
    assert not (toy.run_dir / "attempts/1/child.json").exists()
