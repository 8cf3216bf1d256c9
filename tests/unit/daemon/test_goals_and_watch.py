"""Goals reach the host once and in order; silence is judged; a restart finds everything again."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_supervise.daemon import adopt, goals, launch
from dflash_supervise.daemon.operations import Failed
from dflash_supervise.daemon.request import parse_adopt, parse_start
from dflash_supervise.link import errors
from dflash_supervise.link.errors import AgentRefusal
from dflash_supervise.web.control import Refused
from tests.unit.daemon.conftest import Bench
from tests.unit.daemon.fake_host import FakeHost
from tests.unit.store.writing import Writer, spec, told

Doc = dict[str, Any]


def started(made: Bench, **more: Any) -> tuple[str, Writer]:
    writers: list[Writer] = []

    def launches(host: FakeHost, run_id: str) -> None:
        if writers:
            return
        writers.append(Writer(run=run_id))
        host.write(writers[0].spec(1))
        host.write(writers[0].attempt_start(1))
        host.live.add(run_id)

    made.host.on_ensure = launches
    operation = made.operation()
    launch.start(made.parts, parse_start({"target": "lab8:/w", "command": ["x", "y"], **more}, {}), operation)
    assert operation.run_id is not None
    made.host.asked.clear()
    return operation.run_id, writers[0]


def run_of(made: Bench, run_id: str) -> Doc:
    run = made.store.run(run_id)
    assert run is not None
    return run


def test_a_goal_is_a_newer_generation_and_acknowledged_by_the_agents_own_word(made: Bench) -> None:
    run_id, write = started(made)
    made.store.apply(run_id, [write.attempt_start(4)])
    answer = goals.set_goal(made.parts, run_id, {"want": "stop"})
    assert answer == {"generation": 2, "delivered": True, "acknowledged": False}
    assert made.host.specs[run_id]["goal"] == {"want": "stop", "hold_for_s": None, "end_attempt": None}
    assert made.host.specs[run_id]["highest_attempt"] == 4
    assert run_of(made, run_id)["goal"]["acknowledged"] is False
    made.host.write(write.spec(2, "stop"))
    assert run_of(made, run_id)["goal"]["acknowledged"] is True
    assert [op["op"] for op in made.host.asked] == ["spec", "ensure_agent"]


def test_a_goal_for_a_host_that_is_away_waits_and_is_handed_over_when_it_is_back(made: Bench) -> None:
    run_id, _write = started(made)
    made.host.links[0].cut()
    answer = goals.set_goal(made.parts, run_id, {"want": "hold", "hold_for_s": 60.0})
    assert answer == {"generation": 2, "delivered": False, "acknowledged": False}
    goals.set_goal(made.parts, run_id, {"want": "stop"})
    made.tick()
    assert made.host.specs[run_id]["generation"] == 1
    made.host.links[0].reconnect()
    made.tick()
    assert made.host.specs[run_id]["generation"] == 3 and made.host.specs[run_id]["goal"]["want"] == "stop"
    made.tick()
    assert len(made.host.ops("spec")) == 1, "what was delivered is not sent again"


def test_an_ended_run_takes_no_goal_but_a_restart(made: Bench) -> None:
    run_id, write = started(made)
    made.host.write(write.verdict("crash", cause="bug_in_code", final=True))
    for want in ("stop", "hold", "run"):
        with pytest.raises(Refused, match="is over") as refused:
            goals.set_goal(made.parts, run_id, {"want": want})
        assert refused.value.fix.endswith(f"restart {run_id}")
    goals.set_goal(made.parts, run_id, {"want": "run", "end_attempt": 1})
    assert run_of(made, run_id)["final"] is False
    made.host.write(write.verdict("starting", attempt=2))
    assert run_of(made, run_id)["verdict"] == "starting"
    with pytest.raises(Refused, match="no run"):
        goals.set_goal(made.parts, "none", {"want": "run"})


@pytest.mark.parametrize("away", [False, True])
def test_a_restart_sees_to_the_session_of_a_run_that_was_started_with_one(made: Bench, away: bool) -> None:
    run_id, write = started(made)
    made.host.write(write.verdict("crash", cause="bug_in_code", final=True))
    if away:
        made.host.links[0].cut()
    goals.set_goal(made.parts, run_id, {"want": "run", "end_attempt": 1})
    if away:
        made.host.links[0].reconnect()
        made.tick()
    assert [op["op"] for op in made.host.asked] == ["spec", "ensure_agent", "tmux"]
    argv = made.host.ops("tmux")[0]["argv"]
    assert f"dflash-{run_id}" in argv and argv[-2:] == ["show", f"/w/.dflash/runs/{run_id}"]


def test_a_restart_makes_no_session_where_none_was_wanted_and_does_not_hang_on_one(made: Bench) -> None:
    without, write = started(made, no_tmux=True)
    made.host.write(write.verdict("crash", cause="bug_in_code", final=True))
    goals.set_goal(made.parts, without, {"want": "run", "end_attempt": 1})
    assert made.host.ops("tmux") == []
    made.host.live.clear()
    made.clock.now += 60
    run_id, write = started(made, name="other")
    made.host.write(write.verdict("crash", cause="bug_in_code", final=True))
    made.host.refuse["tmux"] = errors.AgentRefusal("tmux_stuck", "tmux did not answer within 20 s")
    assert goals.set_goal(made.parts, run_id, {"want": "run", "end_attempt": 1})["delivered"]


def test_an_agent_that_is_started_again_has_its_session_again(made: Bench) -> None:
    run_id, _write = started(made)
    made.tick(40)
    assert [op["op"] for op in made.host.asked] == ["ensure_agent", "tmux"]
    assert f"dflash-{run_id}" in made.host.ops("tmux")[0]["argv"]


def test_a_goal_that_a_newer_one_replaced_before_the_agent_saw_it_is_not_acknowledged(made: Bench) -> None:
    run_id, write = started(made)
    asked: list[str] = []

    def both(host: FakeHost, run_id: str) -> None:
        asked.append(run_id)
        if len(asked) == 1:
            made.parts.handover.change(run_id, {"want": "hold"})
            host.write(write.spec(3, "hold"))

    made.host.on_ensure = both
    answer = goals.set_goal(made.parts, run_id, {"want": "stop"})
    assert answer["acknowledged"] is False and answer["superseded_by"] == 3


def test_a_release_takes_no_restart_back_that_the_host_has_not_seen(made: Bench) -> None:
    run_id, write = started(made)
    made.host.links[0].cut()
    goals.set_goal(made.parts, run_id, {"want": "run", "end_attempt": 1})
    goals.set_goal(made.parts, run_id, {"want": "run"})
    assert made.store.spec(run_id)["spec"]["goal"]["end_attempt"] == 1
    made.store.apply(run_id, [write.spec(3, end_attempt=1)])
    goals.set_goal(made.parts, run_id, {"want": "run"})
    assert made.store.spec(run_id)["spec"]["goal"]["end_attempt"] is None


@pytest.mark.parametrize("final", [True, False])
def test_a_restart_that_the_host_could_not_launch_is_refused_and_taken_back(made: Bench, final: bool) -> None:
    run_id, write = started(made)
    made.host.write(write.verdict("crash" if final else "running", final=final))
    made.host.refuse["spec"] = AgentRefusal("no_context", "the launch context is gone", fix="start anew")
    with pytest.raises(Refused, match="context is gone") as refused:
        goals.set_goal(made.parts, run_id, {"want": "run", "end_attempt": 1})
    assert refused.value.fix == "start anew"
    assert made.store.spec(run_id)["spec"]["goal"]["end_attempt"] is None
    assert run_of(made, run_id)["final"] is final


def test_a_restart_of_another_attempt_than_the_newest_is_refused(made: Bench) -> None:
    run_id, _write = started(made)
    for number in (0, 2, 10**9):
        with pytest.raises(Refused, match="is not the newest: that is attempt 1"):
            goals.set_goal(made.parts, run_id, {"want": "run", "end_attempt": number})


def test_what_could_not_be_started_again_takes_no_restart(made: Bench) -> None:
    run_id, write = started(made)
    made.host.write(write.verdict("completed", final=True))
    with pytest.raises(Refused, match="is over") as refused:
        goals.set_goal(made.parts, run_id, {"want": "run", "end_attempt": 1})
    assert refused.value.exit_code == 6 and "start lab8:/w" in refused.value.fix
    theirs = spec("theirs-2605041203-1a2b", kind="adopted")
    made.store.add_run(theirs, host="lab8", target="lab8:/w")
    with pytest.raises(Refused, match="started by somebody else"):
        goals.set_goal(made.parts, theirs["run_id"], {"want": "run", "end_attempt": 1})
    assert run_of(made, theirs["run_id"])["goal"]["generation"] == 1


def test_a_host_that_refuses_a_goal_is_asked_ever_more_rarely_and_at_once_for_a_newer_one(made: Bench) -> None:
    run_id, write = started(made)
    made.host.refuse["spec"] = errors.AgentRefusal("workspace_missing", "/w is not a folder")
    goals.set_goal(made.parts, run_id, {"want": "hold"})

    def asked_at(seconds: int) -> list[int]:
        """In which of the next seconds the host was asked."""
        found = []
        for second in range(seconds):
            made.host.write(write("heartbeat", tick_ms=2))
            before = len(made.host.ops("spec"))
            made.tick()
            found += [second] * (len(made.host.ops("spec")) - before)
        return found

    assert asked_at(200) == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    goals.set_goal(made.parts, run_id, {"want": "stop"})
    assert asked_at(8) == [0, 1, 3, 7], "a newer goal does not wait for an older one's refusals"
    made.host.links[0].cut()
    made.tick()
    made.host.links[0].reconnect()
    assert asked_at(1) == [0], "nor does a host that has just come back"
    del made.host.refuse["spec"]
    assert len(asked_at(100)) == 1 and made.host.specs[run_id]["goal"]["want"] == "stop"


def test_another_supervisors_takeover_makes_us_read_only(made: Bench) -> None:
    run_id, _write = started(made)
    theirs = {**made.host.specs[run_id], "owner": "sup-2", "generation": 5}
    made.host.specs[run_id] = theirs
    answer = goals.set_goal(made.parts, run_id, {"want": "stop"})
    assert answer["delivered"] is False and made.host.specs[run_id] == theirs
    run = run_of(made, run_id)
    assert run["read_only"] == "sup-2" and [note["slug"] for note in run["notes"]] == ["spec_conflict"]
    with pytest.raises(Refused, match="sup-2 owns"):
        goals.set_goal(made.parts, run_id, {"want": "run"})


def test_a_store_that_was_put_back_goes_on_above_the_hosts_generation(made: Bench) -> None:
    run_id, _write = started(made)
    made.host.specs[run_id] = {**made.host.specs[run_id], "generation": 7}
    goals.set_goal(made.parts, run_id, {"want": "stop"})
    made.tick()
    assert made.host.specs[run_id]["generation"] == 8 and made.host.specs[run_id]["goal"]["want"] == "stop"


def test_records_written_while_the_link_was_cut_come_in_order_and_once(made: Bench) -> None:
    run_id, write = started(made)
    made.host.links[0].cut()
    for n in range(5):
        made.host.write(write.verdict("running", phase=str(n)))
    made.host.write(write.incident("crash", "segfault"))
    assert run_of(made, run_id)["verdict"] == "host_unreachable"
    made.host.links[0].reconnect()
    made.host.links[0].reconnect()
    records = made.store.records(run_id)
    assert [r["seq"] for r in records] == [r["seq"] for r in made.host.records[run_id]]
    assert [kind for kind, _ in told(made.store)] == ["started", "incident"]
    assert run_of(made, run_id)["verdict"] == "running"


def test_a_host_away_beyond_the_hold_time_is_told_once_and_its_return_once(made: Bench) -> None:
    started(made)
    made.host.links[0].cut()
    made.tick(60)
    assert [kind for kind, _ in told(made.store)] == ["started"]
    for _ in range(5):
        made.tick(60)
    assert [kind for kind, _ in told(made.store)] == ["started", "unreachable"]
    made.host.links[0].reconnect()
    made.tick()
    made.tick()
    assert [kind for kind, _ in told(made.store)] == ["started", "unreachable", "reachable"]


def test_a_short_cut_is_told_to_nobody(made: Bench) -> None:
    started(made)
    made.host.links[0].cut()
    made.tick(20)
    made.host.links[0].reconnect()
    made.tick()
    assert [kind for kind, _ in told(made.store)] == ["started"]
    assert [one["state"] for one in made.store.incidents()] == ["resolved"]


def test_a_silent_agent_on_a_host_that_answers_is_started_again_and_then_told(made: Bench) -> None:
    run_id, write = started(made)
    made.tick(30)
    assert made.host.ops("ensure_agent") == []
    made.tick(10)
    assert len(made.host.ops("ensure_agent")) == 1
    made.tick(5)
    assert len(made.host.ops("ensure_agent")) == 1, "it is given time to come up"
    assert [note["slug"] for note in run_of(made, run_id)["notes"]] == ["agent_silent"]
    for _ in range(20):
        made.tick(20)
    assert [kind for kind, _ in told(made.store)] == ["started", "silent"]
    made.host.write(write("heartbeat", tick_ms=2))
    made.tick()
    assert run_of(made, run_id)["notes"] == []


def test_a_restarted_daemon_follows_every_run_from_where_it_stood(made: Bench) -> None:
    run_id, write = started(made)
    made.host.logs[(run_id, 1)] = b"one\ntwo\n"
    made.host.write(write.verdict("running"))
    made.store.close()
    made.host.write(write.incident("crash", "segfault"))
    again = made.restart()
    again.parts.links.open_all()
    assert len(again.host.links) == 1
    assert [r["seq"] for r in again.store.records(run_id)] == [1, 2, 3, 4]
    log = again.store.log(run_id)
    assert log is not None and log["text"] == "one\ntwo\n"
    assert [kind for kind, _ in told(again.store)] == ["started", "incident"]
    again.store.close()


def test_a_start_cut_short_by_a_kill_is_closed_or_found_by_asking_the_host(made: Bench) -> None:
    made.store.add_run(spec("never-2601010000-0001"), host="lab8", target="lab8:/w")
    arrived = spec("there-2601010000-0002")
    made.store.add_run(arrived, host="lab8", target="lab8:/w")
    made.host.specs["there-2601010000-0002"] = arrived
    made.parts.links.open_all()
    made.tick()
    never, there = run_of(made, "never-2601010000-0001"), run_of(made, "there-2601010000-0002")
    assert never["final"] and "nothing was launched" in never["sentence"]
    assert not there["final"]
    assert [op["run_id"] for op in made.host.ops("ensure_agent")] == ["there-2601010000-0002"]


def test_adopting_a_session_observes_only(made: Bench) -> None:
    operation = made.operation()
    adopt.adopt(
        made.parts,
        parse_adopt({"target": "lab8:/w", "tmux": "train", "log": "/w/out.log"}),
        {"grace_s": 9.0},
        operation,
    )
    assert operation.run_id is not None
    there = made.host.specs[operation.run_id]
    assert (there["kind"], there["policy"]["preset"]) == ("adopted", "observe")
    assert there["adopt"] == {"tmux": "train", "pid": None, "log": "/w/out.log"}
    assert operation.run_id not in made.host.contexts
    with pytest.raises(Refused, match="absolute"):
        adopt.adopt(made.parts, parse_adopt({"target": "lab8:/w", "pid": 5, "log": "out.log"}), {}, made.operation())


def test_a_process_that_is_watched_already_is_not_adopted_again(made: Bench) -> None:
    run_id, write = started(made)
    made.host.write(write("attempt_start", attempt=2, pid=4321, because="", remedies=[]))
    with pytest.raises(Failed, match=f"watched already, as {run_id}") as failed:
        adopt.adopt(made.parts, parse_adopt({"target": "lab8:/w", "pid": 4321}), {}, made.operation())
    assert failed.value.doc["exit_code"] == 6
    made.host.write(write.verdict("stopped", final=True))
    operation = made.operation()
    adopt.adopt(made.parts, parse_adopt({"target": "lab8:/w", "pid": 4321}), {}, operation)
    assert operation.run_id is not None and any("no log is named" in line for line in operation.lines)


def test_a_run_that_is_new_on_a_host_known_for_long_is_given_its_time_to_speak(made: Bench) -> None:
    started(made)
    made.tick(1000)
    made.host.asked.clear()
    operation = made.operation()
    adopt.adopt(made.parts, parse_adopt({"target": "lab8:/w", "tmux": "train"}), {}, operation)
    assert operation.run_id is not None
    made.host.asked.clear()
    made.tick()
    assert [op for op in made.host.ops("ensure_agent") if op["run_id"] == operation.run_id] == []
    assert run_of(made, operation.run_id)["notes"] == []
    made.tick(40)
    assert [op["run_id"] for op in made.host.ops("ensure_agent")].count(operation.run_id) == 1
    assert run_of(made, operation.run_id)["notes"] == [
        {"slug": "agent_silent", "reason": "the host answers, the run's agent has said nothing yet"}
    ]
    made.clock.now += 0.5
    made.host.write(Writer(run=operation.run_id, t_s=made.host.now_s + 5000.0).spec(1))
    assert run_of(made, operation.run_id)["notes"] == [], "fresh news and silence are never told together"


def test_a_run_that_was_over_for_long_is_not_silent_when_it_is_started_again(made: Bench) -> None:
    run_id, write = started(made)
    made.host.write(write.verdict("crash", cause="bug_in_code", final=True))
    made.tick(1000)
    goals.set_goal(made.parts, run_id, {"want": "run", "end_attempt": 1})
    made.host.asked.clear()
    made.tick()
    assert made.host.ops("ensure_agent") == [] and run_of(made, run_id)["notes"] == []


@pytest.mark.parametrize(
    ("what", "sessions", "said"),
    [
        ({"pid": 999999}, [], "there is no process 999999 on lab8"),
        ({"pid": 999999, "log": "/w/out.log"}, [], "there is no process 999999 on lab8"),
        ({"tmux": "tran"}, ["train", "notes"], "there is no tmux session tran; sessions are: train, notes"),
        ({"tmux": "tran"}, [], "there is no tmux session tran; lab8 has none"),
        ({"tmux": "train"}, ["train"], "nothing runs in the tmux session train"),
    ],
)
def test_adopting_what_is_not_there_says_what_is_and_leaves_no_run(
    made: Bench, what: Doc, sessions: list[str], said: str
) -> None:
    made.host.there = {"pid": None, "sessions": sessions}
    with pytest.raises(Failed) as error:
        adopt.adopt(made.parts, parse_adopt({"target": "lab8:/w", **what}), {}, made.operation())
    assert (error.value.doc["message"], error.value.doc["exit_code"]) == (said, 5)
    assert made.store.runs() == [] and made.host.specs == {} and made.host.options == {}


def test_taking_over_raises_the_generation_and_does_not_tell_the_history_again(made: Bench) -> None:
    write = Writer(run="theirs-2601010000-0003")
    made.host.specs[write.run] = spec(write.run, owner="sup-2", generation=3)
    made.host.write(write.spec(1))
    made.host.write(write.attempt_start(1))
    made.host.write(write.incident("crash", "segfault"))
    operation = made.operation()
    adopt.adopt(made.parts, parse_adopt({"target": "lab8:/w"}), {}, operation)
    assert operation.doc()["run_ids"] == [write.run]
    assert (made.host.specs[write.run]["owner"], made.host.specs[write.run]["generation"]) == ("sup-1", 4)
    assert len(made.store.records(write.run)) == 3 and told(made.store) == []
    made.host.write(write.spec(4))
    made.host.write(write.incident("crash", "abort", attempt=2))
    assert [key for _, key in told(made.store)] == ["incident/2-abort/warn"]


def test_taking_over_an_empty_workspace_says_what_to_name(made: Bench) -> None:
    with pytest.raises(Failed, match="no run of ours") as error:
        adopt.adopt(made.parts, parse_adopt({"target": "lab8:/w"}), {}, made.operation())
    assert "--tmux" in error.value.doc["fix"]


def test_a_link_that_nobody_needs_is_closed(made: Bench) -> None:
    run_id, write = started(made)
    made.clock.now += 1000
    made.parts.links.close_idle()
    assert made.parts.links.get("lab8") is not None
    made.host.write(write.verdict("completed", final=True))
    made.parts.links.close_idle()
    assert made.parts.links.get("lab8") is None and made.host.links[0].closed
    assert run_of(made, run_id)["verdict"] == "completed"


def test_a_run_that_ended_just_now_is_followed_on_for_the_rest_of_its_log(made: Bench) -> None:
    run_id, write = started(made)
    made.host.write(write.verdict("completed", final=True))
    made.store.close()
    made.host.logs[(run_id, 1)] = b"the last words\n"
    again = made.restart()
    again.parts.links.open_all()
    log = again.store.log(run_id)
    assert log is not None and log["text"] == "the last words\n"
    again.tick(100)
    assert again.host.ops("ensure_agent") == [], "an ended run needs no agent"
    again.store.close()
    again.clock.now += 1000
    later = again.restart()
    later.parts.links.open_all()
    assert later.host.links == []
    later.store.close()


def test_the_pane_uses_the_code_that_its_own_workspace_holds(made: Bench) -> None:
    started(made)
    operation = made.operation()
    made.host.live.clear()
    made.host.on_ensure = lambda host, run_id: host.write(Writer(run=run_id).attempt_start(1))
    launch.start(made.parts, parse_start({"target": "lab8:/other", "command": ["x", "y"]}, {}), operation)
    pane = made.host.ops("tmux")[-1]["argv"]
    assert pane[-3] == f"/other/.dflash/agent/{'f' * 64}"
    assert pane[-1] == f"/other/.dflash/runs/{operation.run_id}"
