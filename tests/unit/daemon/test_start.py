"""A start, step by step, against a host in memory."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from dflash_supervise.daemon import launch
from dflash_supervise.daemon.operations import Failed
from dflash_supervise.daemon.request import StartRequest, parse_start
from dflash_supervise.link import errors
from dflash_supervise.web.control import Refused
from tests.unit.daemon.conftest import Bench
from tests.unit.daemon.fake_host import FakeHost
from tests.unit.store.writing import Writer, told

Doc = dict[str, Any]


def wanted(**more: Any) -> StartRequest:
    return parse_start({"target": "lab8:/w", **more}, {})


def launches(host: FakeHost, run_id: str) -> None:
    if host.specs[run_id]["goal"]["want"] != "run" or run_id in host.live:
        return
    write = Writer(run=run_id)
    host.write(write("agent_start", agent={"python": "3.11"}, machine={"hostname": "lab8"}, capabilities=[]))
    host.write(write.spec(1))
    host.write(write.attempt_start(1))
    host.live.add(run_id)


def start(made: Bench, **more: Any) -> Doc:
    operation = made.operation()
    launch.start(made.parts, wanted(**more), operation)
    return {**operation.doc(), "run_id": operation.run_id}


@pytest.mark.parametrize(("target", "pythons"), [("local:/w", [sys.executable]), ("lab8:/w", [])])
def test_the_supervisors_own_python_is_offered_where_the_host_is_this_machine(
    made: Bench, target: str, pythons: list[str]
) -> None:
    made.host.on_ensure = launches
    launch.start(made.parts, parse_start({"target": target}, {}), made.operation())
    assert made.host.ops("preflight")[0]["pythons"] == pythons


def test_a_bundled_start_pushes_hands_over_and_waits_for_the_first_attempt(made: Bench) -> None:
    made.host.on_ensure = launches
    done = start(made, env={"TOKEN": "s3cret"}, set=["optim.lr=1e-3"])
    run_id = done["run_id"]
    assert [op["op"] for op in made.host.asked] == ["preflight", "check_config", "spec", "ensure_agent", "tmux"]
    spec, context = made.host.specs[run_id], made.host.contexts[run_id]
    assert (spec["kind"], spec["generation"], spec["owner"], spec["gpus"]) == ("bundled", 1, "sup-1", "all")
    assert spec["policy"]["preset"] == "auto" and spec["policy"]["max_restarts"] == 3
    assert spec["output_dir"] == f"/w/runs/{run_id}" and spec["trainer_hash"] == "c" * 64
    python = "/w/.venv/bin/python"
    assert context["argv"] == [python, "-m", "dflash_trainer", "train", "--set", "optim.lr=1e-3"]
    assert context["env"] == {"TOKEN": "s3cret", "PYTHONPATH": f"/w/.dflash/trainer/{'c' * 64}"}
    run = made.store.run(run_id)
    assert run is not None and run["goal"]["acknowledged"] and run["attempt"] == 1
    assert told(made.store) == [("started", "started")]
    assert "s3cret" not in str(spec) + str(done) + repr(wanted(env={"TOKEN": "s3cret"}))
    tmux = made.host.ops("tmux")[0]["argv"]
    shown = ["-IS", f"/w/.dflash/agent/{'f' * 64}", "show", f"/w/.dflash/runs/{run_id}"]
    assert tmux[-5:] == ["/usr/bin/python3", *shown] and f"dflash-{run_id}" in tmux


def test_a_foreign_command_is_careful_and_travels_as_it_was_typed(made: Bench) -> None:
    made.host.on_ensure = launches
    run_id = start(made, command=["python", "train.py", "--x"], no_tmux=True)["run_id"]
    assert made.host.specs[run_id]["policy"]["preset"] == "careful"
    assert made.host.specs[run_id]["trainer_hash"] is None
    assert made.host.contexts[run_id] == {"argv": ["python", "train.py", "--x"], "cwd": "/w", "env": {}, "umask": None}
    assert made.host.ops("tmux") == [] and made.host.specs[run_id]["tmux"] is False


def test_a_session_that_the_host_does_not_give_costs_the_run_nothing(made: Bench) -> None:
    made.host.on_ensure = launches
    made.host.refuse["tmux"] = errors.AgentRefusal("tmux_stuck", "tmux did not answer within 20 s")
    done = start(made)
    assert "no tmux session: tmux did not answer within 20 s" in str(done)
    assert done["run_id"] in made.host.live


def test_indices_become_the_uuids_that_the_host_names(made: Bench) -> None:
    made.host.on_ensure = launches
    run_id = start(made, gpus=["1", "GPU-0", "1"])["run_id"]
    assert made.host.specs[run_id]["gpus"] == ["GPU-1", "GPU-0"]
    made.clock.now += 60
    with pytest.raises(Failed, match="no GPU 7") as error:
        start(made, gpus=["7"], replace=True)
    assert error.value.doc["exit_code"] == 5


def test_options_for_the_agent_are_there_before_it_looks(made: Bench) -> None:
    made.host.on_ensure = launches
    run_id = start(made, options={"tick_s": 0.1})["run_id"]
    assert made.host.options == {run_id: {"tick_s": 0.1}}
    assert [op["op"] for op in made.host.asked][:2] == ["set_options", "preflight"]
    assert made.host.ops("preflight")[0]["run_id"] == run_id


def test_settings_that_the_trainer_refuses_are_a_failed_check_in_its_own_words_and_cost_no_launch(made: Bench) -> None:
    sentence = "--set prset=1: prset: unknown key (did you mean preset?)"
    made.host.config = {"settings": "wrong", "message": sentence}
    with pytest.raises(Failed) as error:
        start(made, set=["prset=1"])
    assert (error.value.doc["code"], error.value.doc["message"]) == ("config_error", sentence)
    assert error.value.doc["exit_code"] == 5
    assert made.store.runs() == [] and made.host.specs == {}
    asked = made.host.ops("check_config")[0]["context"]
    assert asked["argv"] == ["/w/.venv/bin/python", "-m", "dflash_trainer", "train", "--set", "prset=1"]


def test_a_live_run_is_not_replaced_for_settings_that_the_trainer_refuses(made: Bench) -> None:
    made.host.on_ensure = launches
    live = start(made)["run_id"]
    made.host.look = {"live_run": live}
    made.host.config = {"settings": "wrong", "message": "--set prset=1: prset: unknown key"}
    with pytest.raises(Failed, match="unknown key"):
        start(made, set=["prset=1"], replace=True)
    assert [spec["goal"]["want"] for spec in made.host.specs.values()] == ["run"]


def test_settings_that_could_not_be_checked_are_said_to_be_so_and_stop_nothing(made: Bench) -> None:
    made.host.config = {"settings": "unknown", "message": "the trainer did not answer within 45 s"}
    made.host.on_ensure = launches
    operation = made.operation()
    launch.start(made.parts, parse_start({"target": "gpubox:/w"}, {}), operation)
    assert "the settings could not be checked: the trainer did not answer within 45 s" in str(operation.doc())


def test_a_live_run_refuses_the_start_with_the_ways_out_and_nothing_is_kept(made: Bench) -> None:
    made.host.live.add("other-1")
    with pytest.raises(Failed, match="run other-1 is alive") as error:
        start(made)
    assert error.value.doc["exit_code"] == 6 and "--replace" in error.value.doc["fix"]
    assert made.store.runs() == [] and made.host.specs == {}


def test_replace_ends_our_live_run_first_and_keeps_its_name_for_the_new_one(made: Bench) -> None:
    made.host.on_ensure = launches
    first = start(made, name="demo")["run_id"]
    made.clock.now += 60
    second = start(made, name="demo", replace=True)["run_id"]
    assert first != second and made.host.specs[first]["goal"]["want"] == "stop"
    assert made.host.live == {second}


def test_replace_does_not_end_what_another_supervisor_owns(made: Bench) -> None:
    made.host.live.add("theirs-1")
    with pytest.raises(Failed, match="belongs to another supervisor"):
        start(made, replace=True)
    assert made.host.live == {"theirs-1"}


@pytest.mark.parametrize(
    ("code", "exit_code"), [("python_missing", 5), ("disk_full", 5), ("tmux_missing", 5), ("unsafe_workspace", 6)]
)
def test_a_blocker_ends_the_start_with_its_fix_before_anything_is_done(made: Bench, code: str, exit_code: int) -> None:
    made.host.look = {"blockers": [{"code": code, "message": "it lacks it", "fix": "bring it"}]}
    with pytest.raises(Failed, match="it lacks it") as error:
        start(made)
    assert (error.value.doc["exit_code"], error.value.doc["fix"]) == (exit_code, "bring it")
    assert made.host.specs == {} and made.store.runs() == []


def test_without_tmux_a_start_goes_on_where_that_was_asked_for(made: Bench) -> None:
    made.host.on_ensure = launches
    made.host.look = {"tmux": None, "blockers": [{"code": "tmux_missing", "message": "none", "fix": ""}]}
    assert start(made, no_tmux=True)["run_id"] in made.host.specs


def test_a_refused_start_asks_the_host_to_stop_so_that_it_never_comes_true_by_itself(made: Bench) -> None:
    made.host.on_ensure = lambda host, run_id: host.write(Writer(run=run_id).verdict("stale_process", attempt=1))
    operation = made.operation()
    with pytest.raises(Failed) as error:
        launch.start(made.parts, wanted(), operation)
    assert error.value.doc["exit_code"] == 6 and operation.run_id is not None
    assert made.host.specs[operation.run_id]["goal"]["want"] == "stop"


def test_a_stale_gpu_fails_the_start_with_exit_6_and_the_run_stays_with_its_verdict(made: Bench) -> None:
    evidence = [{"rule": "stale", "status": "failing", "reason": "GPU 3", "evidence": [{"what": "util", "value": 100}]}]

    def refuses(host: FakeHost, run_id: str) -> None:
        write = Writer(run=run_id)
        host.write(write.verdict("starting", attempt=0))
        host.write(write.verdict("stale_process", attempt=0, cause="zombie_gpu_memory", suspected=True))
        host.write(write.verdict("stale_process", attempt=0, cause="zombie_gpu_memory", final=True, findings=evidence))

    made.host.on_ensure = refuses
    operation = made.operation()
    with pytest.raises(Failed) as error:
        launch.start(made.parts, wanted(), operation)
    assert error.value.doc["exit_code"] == 6 and error.value.doc["evidence"] == evidence
    assert operation.run_id is not None
    run = made.store.run(operation.run_id)
    assert run is not None and (run["verdict"], run["exit_status"], run["attempt"]) == ("stale_process", 6, 0)
    assert [kind for kind, _ in told(made.store)] == ["refused"]


def test_an_agent_that_says_nothing_leaves_the_run_in_the_list(made: Bench) -> None:
    operation = made.operation()
    with pytest.raises(Failed, match="said nothing") as error:
        launch.start(made.parts, wanted(), operation)
    assert error.value.doc["exit_code"] == 4
    assert operation.run_id is not None and made.store.run(operation.run_id) is not None


def test_a_spec_that_the_host_refuses_leaves_no_run_behind(made: Bench) -> None:
    made.host.refuse["spec"] = errors.AgentRefusal("unsafe_workspace", "others can write there", fix="chmod go-w")
    with pytest.raises(errors.AgentRefusal):
        start(made)
    assert made.store.runs() == []


def test_a_link_that_breaks_at_the_handover_keeps_the_run_and_the_host_decides(made: Bench) -> None:
    made.host.refuse["spec"] = errors.RequestTimeout("no answer to spec")
    operation = made.operation()
    with pytest.raises(errors.RequestTimeout):
        launch.start(made.parts, wanted(), operation)
    assert operation.run_id is not None
    made.tick()
    run = made.store.run(operation.run_id)
    assert run is not None and run["final"] and "nothing was launched" in run["sentence"]


def test_an_unreachable_host_is_the_link_s_own_error(made: Bench) -> None:
    made.host.up = False
    with pytest.raises(errors.Unreachable):
        start(made)


def test_a_name_in_use_is_refused_when_chosen_and_numbered_when_made(made: Bench) -> None:
    made.host.on_ensure = launches
    assert start(made, name="demo")["run_id"].startswith("demo-")
    made.host.live.clear()
    with pytest.raises(Failed, match="named demo is not over"):
        start(made, name="demo")
    assert start(made)["run_id"].startswith("w-")
    made.host.live.clear()
    made.clock.now += 60
    assert start(made)["run_id"].startswith("w-2-")


@pytest.mark.parametrize(
    ("request_doc", "words"),
    [
        ({"target": "nowhere"}, "no absolute path"),
        ({"target": "lab8:/w", "nmae": "x"}, "did you mean name"),
        ({"target": "lab8:/w", "name": "Big Name"}, "lower-case"),
        ({"target": "lab8:/w", "command": "ls"}, "list of strings"),
        ({"target": "lab8:/w", "command": ["ls"], "set": ["a=1"]}, "bundled trainer"),
        ({"target": "lab8:/w", "policy": {"preset": "bold"}}, "auto, careful, observe"),
        ({"target": "lab8:/w", "policy": {"max_restart": 1}}, "did you mean max_restarts"),
        ({"target": "lab8:/w", "policy": {"grace_s": "soon"}}, "must be a number"),
        ({"target": "lab8:/w", "gpus": 3}, "gpus must be"),
        ({"target": "lab8:/w", "env": {"A": 1}}, "names to text"),
        ({"target": "lab8:/w", "python": 3}, "must be a string"),
        ({"target": "lab8:/w", "train": {"text": "x = = 1"}}, "not TOML"),
        ({"target": "lab8:/w", "train": {"text": "d = 2020-01-01"}}, "d: "),
    ],
)
def test_a_wrong_request_is_refused_with_exit_2_before_anything_is_contacted(request_doc: Doc, words: str) -> None:
    with pytest.raises(Refused, match=words) as error:
        parse_start(request_doc, {})
    assert error.value.exit_code == 2


def test_the_trainers_file_travels_as_settings_that_come_before_the_typed_ones() -> None:
    text = 'preset = "tiny"\nsteps = 45\n[optim]\nlr = 1e-3\nbetas = [0.9, 0.99]\nfused = true\nname = "a \\"b\\""\n'
    request = wanted(train={"text": text, "name": "t.toml"}, set=["steps=50"])
    assert request.train_settings == (
        'preset="tiny"',
        "steps=45",
        "optim.lr=0.001",
        "optim.betas=[0.9, 0.99]",
        "optim.fused=true",
        'optim.name="a \\"b\\""',
        "steps=50",
    )


def test_the_configured_policy_stands_below_the_request_and_above_the_preset_of_the_kind() -> None:
    request = parse_start({"target": "lab8:/w", "policy": {"grace_s": 3}}, {"grace_s": 9.0, "max_restarts": 1})
    assert (request.policy["grace_s"], request.policy["max_restarts"], request.policy["preset"]) == (3.0, 1, "auto")
