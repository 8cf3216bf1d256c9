"""What is typed wrongly: refused in our words, before a daemon is brought up or anybody is contacted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_supervise.daemon import spawn
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble, run_doc


@pytest.fixture
def brought_up(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Each time that a daemon would be brought up; none ever is."""
    asked: list[object] = []

    def refuse(settings: object) -> None:
        asked.append(settings)
        raise spawn.NotStarted("not in this test")

    monkeypatch.setattr(spawn, "ensure_running", refuse)
    return asked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("start foo", "no absolute path"),
        ("start foo --json", "no absolute path"),
        ("start lab8:0:/w", "port 0"),
        ("start -- lab8:/w ''", "empty word"),
        ("start lab8:/w --train dated.toml", "no value of the trainer's"),
        ("start lab8:/w --train latin.toml", "no UTF-8 text"),
        ("start lab8:/w --train absent.toml", "absent.toml: No such file or directory"),
        ("start lab8:/w --name A", "no name of a run"),
        ("start lab8:/w --gpus x", "names no GPUs"),
        ("start lab8:/w --set x", "no setting"),
        ("adopt foo --pid 7", "no absolute path"),
        ("adopt lab8:/w --pid 7 --name A", "no name of a run"),
        ("adopt lab8:/w --tmux ''", "--tmux is empty"),
        ("doctor foo", "no absolute path"),
        ("host trust foo", "no absolute path"),
        ("host trust lab8:/w --fingerprint abc", "begins with SHA256:"),
    ],
)
def test_a_mistake_is_refused_before_a_daemon_is_brought_up(
    invoke: Invoke, brought_up: list[object], tmp_path: Path, arguments: str, said: str
) -> None:
    (tmp_path / "dated.toml").write_text("when = 2026-11-30\n")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe4'\n")
    ran = invoke(*("" if word == "''" else word for word in arguments.split()))
    assert ran.code == 2 and said in ran.out + ran.err, ran
    assert "Errno" not in ran.err and brought_up == []


def test_a_right_command_line_does_ask_for_a_daemon(invoke: Invoke, brought_up: list[object]) -> None:
    assert invoke("start", "lab8:/w").code == 7
    assert len(brought_up) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "ps",
        "status",
        "status x",
        "why x",
        "logs x",
        "logs -f x",
        "events",
        "events x",
        "attach x",
        "open",
        "wait x",
        "host ls",
        "daemon status",
        "doctor",
        "config check absent.toml",
        "demo --port x",
    ],
)
def test_a_refusal_is_one_document_too(invoke: Invoke, brought_up: list[object], arguments: str) -> None:
    ran = invoke(*arguments.split(), "--json")
    refused = json.loads(ran.out)
    assert ran.code in (2, 7) and refused["schema"] == 1
    assert refused["error"]["exit_code"] == ran.code and refused["error"]["message"]


def test_a_refusal_that_quotes_a_log_cannot_fool_the_terminal(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    refusal = {"code": "already_over", "message": "over: \x1b]0;pwned\x07x", "fix": "\x1b[2Jnone", "exit_code": 3}
    daemon.refusals["POST", f"/runs/{daemon.runs[0]['id']}/goal"] = (409, refusal)
    ran = invoke("hold", "qwen")
    assert (ran.code, ran.err) == (3, "error: over: x\nfix:   none\n")


def test_an_empty_answer_says_so(invoke: Invoke, daemon: DaemonDouble) -> None:
    for verb in ("ps", "status"):
        ran = invoke(verb)
        assert (ran.code, ran.out) == (0, "") and "no runs; start one" in ran.err
    daemon.runs = [run_doc(verdict="completed", final=True, news_age_s=200000.0)]
    ran = invoke("ps")
    assert (ran.code, ran.out) == (0, "") and "1 older: dflash-supervise ps -a" in ran.err
    assert "no hosts" in invoke("host", "ls").err


@pytest.mark.parametrize("group", [(), ("host",), ("daemon",), ("config",)])
def test_a_group_without_a_verb_shows_its_help_and_no_error(invoke: Invoke, group: tuple[str, ...]) -> None:
    ran = invoke(*group)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"Usage: {' '.join(('dflash-supervise', *group))} ") and "error" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("wait x --step 3", "error: there is no option --step\n"),
        ("start a:/b --polcy auto", "error: there is no option --polcy; did you mean --policy?\n"),
        ("stop", "error: RUN is missing\n"),
        ("logs x -n abc", "error: --tail: 'abc' is no whole number; use one from 0 to 10000\n"),
        ("logs x -n 99999", "error: --tail: 99999 is out of range; use a whole number from 0 to 10000\n"),
        ("logs x --attempt 0", "error: --attempt: 0 is out of range; use a whole number from 1 on\n"),
        ("daemon run --port 70000", "error: --port: 70000 is out of range; use a whole number from 0 to 65535\n"),
        ("adopt a:/b --pid init", "error: --pid: 'init' is no whole number; use one from 2 on\n"),
        ("host lss", "error: no verb is called 'lss'; did you mean ls?\n"),
        ("start --name", "fix:   see dflash-supervise start --help\n"),
        ("ps extra", "error: got unexpected extra argument (extra)\n"),
        ("wait x --for dinner", "error: --for: 'dinner' is no event; use first-step, done, incident or step=N\n"),
    ],
)
def test_usage_errors_are_in_our_words(invoke: Invoke, arguments: str, said: str) -> None:
    ran = invoke(*arguments.split())
    assert ran.code == 2 and said in ran.err, ran.err


def test_what_would_be_started_is_printed_for_a_person(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    (tmp_path / "t.toml").write_text("steps = 3\n")
    arguments = "start lab8:/w --dry-run --train t.toml --set a=1 --set b.c=none --gpus 0,1 --env HF_TOKEN --replace"
    ran = invoke(*arguments.split(), "--policy", "careful")
    assert ran.out.splitlines() == [
        "would start on lab8:/w: the bundled DFlash trainer",
        "  gpus: 0, 1",
        "  env: HF_TOKEN (the values are not shown)",
        '  policy: preset = "careful"',
        "  train: t.toml",
        "  set: a = 1",
        '  set: b.c = "none"',
        "  replace: true",
    ]
    ran = invoke("start", "lab8:/w", "--dry-run", "--", "sh", "-c", "a b")
    assert ran.out == "would start on lab8:/w: sh -c 'a b'\n"


def test_what_would_be_adopted_is_printed_for_a_person_and_as_json_on_request(invoke: Invoke) -> None:
    ran = invoke("adopt", "lab8:/w", "--tmux", "train", "--log", "/w/x.log", "--name", "mine", "--dry-run")
    assert ran.out == "would watch tmux session train on lab8:/w, with the log /w/x.log, as mine\n"
    assert invoke("adopt", "lab8:/w", "--dry-run").out == "would take over the runs in lab8:/w\n"
    document = json.loads(invoke("adopt", "lab8:/w", "--pid", "7", "--dry-run", "--json").out)
    assert document["request"] == {"target": "lab8:/w", "pid": 7}


def test_stopping_the_daemon_dry_is_a_document_and_needs_a_daemon(
    invoke: Invoke, daemon: DaemonDouble, state_dir: Path
) -> None:
    assert json.loads(invoke("daemon", "stop", "--dry-run", "--json").out)["dry_run"] is True
    assert daemon.posts("/daemon/stop") == []
    (state_dir / "daemon.json").write_text('{"url": "http://127.0.0.1:9"}')
    assert invoke("daemon", "stop", "--dry-run").code == 7


def test_a_configuration_is_checked_by_option_as_by_argument(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[daemon]\nprot = 1\n")
    for arguments in (["--config", "bad.toml"], ["bad.toml"]):
        ran = invoke("config", "check", *arguments)
        assert ran.code == 2 and "did you mean port?" in ran.err
        assert invoke("config", "show", *arguments).code == 2


@pytest.mark.parametrize("where", ["file", "below a file", "shared"])
def test_a_state_folder_that_cannot_be_used_is_said_without_a_traceback(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    state = tmp_path / {"file": "file", "below a file": "file/state", "shared": "shared"}[where]
    monkeypatch.setenv("DFLASH_SUPERVISE_STATE_DIR", str(state))
    ran = invoke("doctor", "--json")
    assert (ran.code, json.loads(ran.out)["error"]["code"]) == (2, "bad_state_dir")
    assert invoke("ps").code == 7
    ran = invoke("daemon", "run", "--port", "0")
    assert ran.code == 2 and "the state folder cannot be used" in ran.err
    assert (tmp_path / "shared").stat().st_mode & 0o7777 == 0o1777, "nobody else is locked out of it"


def test_a_session_that_is_not_ours_is_not_attached_to(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(kind="adopted")]
    ran = invoke("attach", "qwen", "--dry-run")
    assert (ran.code, ran.out) == (6, "") and "started by somebody else" in ran.err


def test_a_run_without_tmux_is_not_said_to_have_a_session(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    daemon.operations["runs"] = [{"state": "done", "lines": [], "run_id": daemon.runs[0]["id"]}]
    ran = invoke("start", "lab8:/w", "--detach", "--no-tmux")
    assert "attach" not in ran.err and "look in with: dflash-supervise logs -f qwen" in ran.err


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("hold qwen --for 9999999d", "--for"),
        ("hold qwen --for 366d1s", "--for"),
        ("wait qwen --timeout " + "9" * 400, "--timeout"),
        ("stop qwen --timeout 9999999d", "--timeout"),
        ("restart qwen --timeout 9999999d", "--timeout"),
    ],
)
def test_a_time_longer_than_a_leap_year_is_refused(
    invoke: Invoke, daemon: DaemonDouble, arguments: str, option: str
) -> None:
    ran = invoke(*arguments.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {option}: '") and "is too long; use at most 366d\n" in ran.err
    assert daemon.asked == []
