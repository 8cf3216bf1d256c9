"""``start``: from the command line to the request, and from the operation to the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_supervise.cli import api, main, watch
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble, run_doc

RUN = "qwen-2611300501-1f2e"
DONE = {"state": "done", "lines": ["python 3.12 with torch 2.13", "launched"], "run_id": RUN}


@pytest.fixture
def launched(daemon: DaemonDouble) -> DaemonDouble:
    """A daemon whose next start succeeds."""
    daemon.runs = [run_doc(verdict="starting", step=None)]
    daemon.operations["runs"] = [{"state": "running", "lines": ["python 3.12 with torch 2.13"]}, DONE]
    return daemon


def test_start_shows_the_operation_and_ends_with_the_first_step(invoke: Invoke, launched: DaemonDouble) -> None:
    launched.looks[RUN] = [
        run_doc(verdict="starting", step=None, sentence="Loading."),
        run_doc(verdict="starting", step=None, sentence="Loading."),
        run_doc(step=1),
    ]
    ran = invoke("start", "ana@lab8:/scratch/qwen")
    assert (ran.code, ran.out) == (0, RUN + "\n")
    assert ran.err.count("python 3.12 with torch 2.13") == 1
    assert ran.err.count("Loading.") == 1, "a verdict is told when it changes"
    assert "qwen trains" in ran.err and "step 1/400" in ran.err
    assert launched.posts("/runs") == [{"target": "ana@lab8:/scratch/qwen"}]


def test_every_option_reaches_the_daemon(
    invoke: Invoke, launched: DaemonDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    (tmp_path / "t.toml").write_text("steps = 3\n")
    (tmp_path / "d.toml").write_text('[policy]\nmax_restarts = 1\npreset = "observe"\n')
    arguments = "start lab8:/w -d --name b16 --gpus 0,1 --env HF_TOKEN --env A=b --config d.toml --train t.toml"
    arguments += " --set optim.lr=0.1 --set steps=4 --python /opt/py --policy careful --resume none --no-tmux"
    ran = invoke(*arguments.split())
    assert ran.code == 0 and "s3cret" not in ran.out + ran.err
    assert launched.posts("/runs") == [
        {
            "target": "lab8:/w",
            "name": "b16",
            "gpus": ["0", "1"],
            "env": {"HF_TOKEN": "s3cret", "A": "b"},
            "python": "/opt/py",
            "policy": {"max_restarts": 1, "preset": "careful"},
            "train": {"name": "t.toml", "text": "steps = 3\n"},
            "set": ["optim.lr=0.1", "steps=4"],
            "resume": "none",
            "no_tmux": True,
            "detach": True,
        }
    ]


def test_a_command_of_the_user_is_handed_on_word_for_word(invoke: Invoke, launched: DaemonDouble) -> None:
    assert invoke("start", "lab8:/w", "--detach", "--", "torchrun", "--json", "-m", "x y").code == 0
    assert launched.posts("/runs")[0]["command"] == ["torchrun", "--json", "-m", "x y"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env", "API_TOKEN=x"], "would show a secret"),
        (["--env", "NOT_SET_ANYWHERE"], "not set here"),
        (["--env", "1x=2"], "no variable"),
        (["--gpus", "first"], "GPU-uuid"),
        (["--name", "Big Run"], "a-z"),
        (["--set", "steps"], "KEY=VALUE"),
        (["--train", "missing.toml"], "readable TOML"),
        (["--train", "broken.toml"], "not TOML"),
        (["--train", "digits.toml"], "not TOML"),
        (["--train", "deep.toml"], "nested too deeply"),
        (["--train", "dotted.toml"], "nested too deeply"),
        (["--config", "missing.toml"], "missing.toml"),
        (["--detach", "--wait"], "exclude each other"),
        (["--train", "broken.toml", "--", "python"], "bundled trainer"),
        (["--polcy", "auto"], "--policy"),
        (["--replace"], "--yes"),
    ],
)
def test_a_mistake_on_the_command_line_contacts_nobody(
    invoke: Invoke, launched: DaemonDouble, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "broken.toml").write_text("steps = \n")
    (tmp_path / "digits.toml").write_text(f"steps = {'9' * 5000}\n")
    (tmp_path / "dotted.toml").write_text(f"steps{'.a' * 3000} = 1\n")
    (tmp_path / "deep.toml").write_text(f"steps = {'[' * 3000}{']' * 3000}\n")
    ran = invoke("start", "lab8:/w", *arguments)
    assert ran.code == 2 and said in ran.err
    assert launched.asked == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "no_python", "message": "No Python with torch.", "fix": "--python PATH", "exit_code": 5}, 5),
        ({"code": "live_run", "message": "A run lives there.", "fix": "adopt, stop or --replace", "exit_code": 6}, 6),
        ({"code": "target", "message": "target 'x': no absolute path", "fix": "", "exit_code": 2}, 2),
    ],
)
def test_a_start_that_fails_says_what_and_the_way_out(
    invoke: Invoke, launched: DaemonDouble, error: dict[str, object], code: int
) -> None:
    launched.operations["runs"] = [{"state": "failed", "lines": [], "error": error}]
    ran = invoke("start", "lab8:/w")
    assert ran.code == code and str(error["message"]) in ran.err and str(error["fix"]) in ran.err
    assert ran.out == ""


def test_a_refusal_of_the_request_itself_is_told_in_the_same_way(invoke: Invoke, launched: DaemonDouble) -> None:
    launched.refusals["POST", "/runs"] = (409, {"code": "x", "message": "No.", "fix": "Yes.", "exit_code": 6})
    ran = invoke("start", "lab8:/w", "--json")
    assert ran.code == 6 and json.loads(ran.out)["error"]["fix"] == "Yes."


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (run_doc(verdict="early_crash", step=None, final=True, exit_status=100), 100),
        (run_doc(verdict="early_crash", step=None), 101),
        (run_doc(verdict="stale_process", attempt=0, step=None), 6),
        (run_doc(verdict="stale_process", attempt=0, step=None, final=True, exit_status=6), 6),
    ],
)
def test_a_bad_first_verdict_ends_the_watching(
    invoke: Invoke, launched: DaemonDouble, last: dict[str, object], code: int
) -> None:
    launched.looks[RUN] = [run_doc(verdict="starting", step=None), run_doc(verdict="hang", suspected=True), last]
    ran = invoke("start", "lab8:/w")
    assert ran.code == code and "dflash-supervise why qwen" in ran.err


def test_a_bad_first_verdict_is_told_with_the_line_of_the_log_that_names_the_reason(
    invoke: Invoke, launched: DaemonDouble
) -> None:
    line = "stepz: unknown key \x1b]0;pwned\x07(did you mean steps?) " + "in a table that is far away " * 5
    ended = {"verdict": "early_crash", "cause": "config_error", "sentence": "exit code 64", "step": None}
    launched.looks[RUN] = [
        run_doc(verdict="starting", step=None),
        run_doc(**ended, key_line=line),
        run_doc(**ended, key_line=line, final=True, exit_status=100),
    ]
    ran = invoke("start", "ana@lab8:/scratch/qwen")
    told = "    > stepz: unknown key (did you mean steps?) " + "in a table that is far away " * 5
    assert [text for text in ran.err.splitlines() if text.startswith("    >")] == [told]
    assert "pwned" not in ran.err and "\x1b" not in ran.err


def test_a_line_that_stands_in_the_sentence_is_not_told_twice(invoke: Invoke, launched: DaemonDouble) -> None:
    launched.looks[RUN] = [
        run_doc(verdict="crash", sentence="exit code 1: KeyError: 'x'", key_line="KeyError: 'x'", final=True)
    ]
    assert invoke("start", "ana@lab8:/scratch/qwen").err.count("KeyError") == 1


def test_wait_follows_through_restarts_to_the_end(invoke: Invoke, launched: DaemonDouble) -> None:
    launched.looks[RUN] = [
        run_doc(),
        run_doc(verdict="crash"),
        run_doc(attempt=2),
        run_doc(attempt=2, verdict="completed", final=True, exit_status=0),
    ]
    ran = invoke("start", "lab8:/w", "--wait", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["run"]["attempt"] == 2


def test_ctrl_c_leaves_the_run_alone_and_says_how_to_come_back(
    invoke: Invoke, launched: DaemonDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        if [path for _method, path, _body in launched.asked].count(f"/runs/{RUN}") > 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch, "sleep", interrupted)
    ran = invoke("start", "lab8:/w")
    assert ran.code == 130
    assert "the run goes on" in ran.err and "dflash-supervise logs -f qwen" in ran.err
    assert [path for method, path, _body in launched.asked if method == "POST"] == ["/runs"]


def test_a_daemon_that_vanishes_while_we_watch_is_exit_101_and_not_the_runs_fault(
    invoke: Invoke, launched: DaemonDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "GONE_S", 0.0)
    launched.looks[RUN] = [run_doc(verdict="starting", step=None)]
    calls = iter([None, None])

    def gone(*_arguments: object, **_more: object) -> None:
        raise api.no_daemon()

    def vanish(_seconds: float) -> None:
        if next(calls, "gone") == "gone":
            monkeypatch.setattr(api.Api, "get", gone)

    monkeypatch.setattr(watch, "sleep", vanish)
    ran = invoke("start", "lab8:/w")
    assert ran.code == 101 and "the run goes on without it" in ran.err


def test_an_unknown_host_key_is_never_taken_without_a_person_even_with_yes(
    invoke: Invoke, launched: DaemonDouble
) -> None:
    error = {
        "code": "host_key_unknown",
        "message": "lab8 is seen for the first time.",
        "fix": "",
        "exit_code": 5,
        "fingerprint": "SHA256:abc",
        "key_type": "ssh-ed25519",
    }
    launched.operations["runs"] = [{"state": "failed", "lines": [], "error": error}]
    ran = invoke("start", "lab8:/w", "--yes")
    assert ran.code == 5
    assert "ssh-ed25519 SHA256:abc" in ran.err
    assert "dflash-supervise host trust lab8:/w --fingerprint SHA256:abc" in ran.err
    assert launched.posts("/hosts/trust") == []


def test_host_trust_hands_the_fingerprint_on(invoke: Invoke, launched: DaemonDouble) -> None:
    assert invoke("host", "trust", "lab8:/w", "--fingerprint", "SHA256:abc").code == 0
    assert launched.posts("/hosts/trust") == [{"target": "lab8:/w", "fingerprint": "SHA256:abc"}]


def test_a_dry_run_contacts_nobody_and_shows_no_value_of_the_environment(
    invoke: Invoke, daemon: DaemonDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    ran = invoke("start", "lab8:/w", "--env", "HF_TOKEN", "--dry-run")
    assert ran.code == 0 and "HF_TOKEN" in ran.out and "s3cret" not in ran.out + ran.err
    assert daemon.asked == []


def test_adopt_watches_a_session_or_a_process(invoke: Invoke, launched: DaemonDouble) -> None:
    ran = invoke("adopt", "lab8:/w", "--tmux", "a", "--pid", "77")
    assert ran.code == 2 and "--tmux and --pid exclude each other" in ran.err
    assert invoke("adopt", "lab8:/w", "--tmux", "a", "--log", "x.log").code == 2
    launched.operations["adopt"] = [DONE]
    ran = invoke("adopt", "lab8:/w", "--tmux", "train", "--log", "/w/x.log")
    assert (ran.code, ran.out) == (0, RUN + "\n")
    assert launched.posts("/adopt") == [{"target": "lab8:/w", "tmux": "train", "log": "/w/x.log"}]


def test_adopt_without_a_session_or_process_takes_over_the_runs_of_the_workspace(
    invoke: Invoke, launched: DaemonDouble
) -> None:
    launched.runs = [run_doc(), run_doc(name="llama"), run_doc(name="old", verdict="completed", final=True)]
    ids = [run["id"] for run in launched.runs]
    launched.operations["adopt"] = [{"state": "done", "lines": [], "run_id": ids[-1], "run_ids": ids}]
    ran = invoke("adopt", "lab8:/w")
    assert (ran.code, ran.out.splitlines()) == (0, ids)
    assert "qwen is ours now\nllama is ours now\n" in ran.err
    assert "old is over" in ran.err and "old is ours" not in ran.err
    assert launched.posts("/adopt") == [{"target": "lab8:/w"}]
    document = json.loads(invoke("adopt", "lab8:/w", "--json").out)
    assert [run["id"] for run in document["runs"]] == ids


@pytest.mark.parametrize("option", [("--log", "/w/x.log"), ("--name", "mine")])
def test_what_describes_a_session_is_refused_for_a_take_over(
    invoke: Invoke, launched: DaemonDouble, option: tuple[str, str]
) -> None:
    ran = invoke("adopt", "lab8:/w", *option)
    assert ran.code == 2 and f"{option[0]} goes with --tmux or --pid only" in ran.err
    assert launched.posts("/adopt") == []


def test_usage_errors_are_json_too(invoke: Invoke) -> None:
    ran = invoke("start", "--json")
    assert ran.code == 2 and json.loads(ran.out)["error"]["code"] == "usage"
    assert main.run(["strat"]) == 2
