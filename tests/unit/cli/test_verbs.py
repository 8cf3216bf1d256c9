"""Verbs about daemon, hosts, configuration and shell; and a daemon that is absent or broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble, run_doc

RUN = "qwen-2611300501-1f2e"


def test_without_a_daemon_every_looking_verb_exits_7_with_the_way_out(invoke: Invoke) -> None:
    for arguments in (["ps"], ["status", "x"], ["why", "x"], ["logs", "x"], ["stop", "x"], ["daemon", "status"]):
        ran = invoke(*arguments)
        assert (ran.code, ran.out) == (7, ""), arguments
        assert "no daemon is running" in ran.err and "dflash-supervise daemon run" in ran.err


def test_a_daemon_file_of_a_dead_daemon_is_no_daemon(invoke: Invoke, state_dir: Path) -> None:
    state_dir.mkdir()
    (state_dir / "daemon.json").write_text('{"url": "http://127.0.0.1:9"}')
    (state_dir / "token").write_text("x")
    assert invoke("ps").code == 7
    (state_dir / "daemon.json").write_text("[]")
    torn = invoke("ps")
    assert (torn.code, "no daemon is running" in torn.err) == (7, True)


def test_a_wrong_token_is_said_and_is_no_traceback(invoke: Invoke, daemon: DaemonDouble, state_dir: Path) -> None:
    (state_dir / "token").write_text("wrong")
    ran = invoke("ps")
    assert ran.code == 1 and "does not take our token" in ran.err


def test_open_prints_the_link_that_logs_in_once(invoke: Invoke, daemon: DaemonDouble) -> None:
    ran = invoke("open", "--print")
    assert (ran.code, ran.out) == (0, f"{daemon.url}/login?token=once\n")


def test_attach_runs_tmux_through_sh_on_the_host_and_directly_here(invoke: Invoke, daemon: DaemonDouble) -> None:
    import os

    daemon.runs = [run_doc(target="ana@lab8:2222:/scratch/qwen"), run_doc(name="here", target="local:/tmp/w")]
    argv = json.loads(invoke("attach", "qwen", "--json").out)["argv"]
    assert argv[:4] == ["ssh", "-t", "-p", "2222"] and argv[-2] == "ana@lab8"
    assert argv[-1] == f"exec /bin/sh -c 'exec tmux -u -L dflash-$(id -u) attach -r -t =dflash-{RUN}'"
    argv = json.loads(invoke("attach", "here", "--json").out)["argv"]
    assert argv == ["tmux", "-u", "-L", f"dflash-{os.getuid()}", "attach", "-r", "-t", "=dflash-here-2611300501-1f2e"]
    assert "-r" not in json.loads(invoke("attach", "here", "--write", "--json").out)["argv"]
    assert invoke("attach", "here").code == 2, "no terminal"


@pytest.mark.parametrize(
    ("target", "where"),
    [
        ("lab8:/w", ("lab8", "")),
        ("ana@lab8:22:/w", ("ana@lab8", "22")),
        ("[::1]:2200:/w", ("::1", "2200")),
        ("ana@[fe80::1]:/w", ("ana@fe80::1", "")),
    ],
)
def test_the_ssh_destination_is_read_from_the_target(target: str, where: tuple[str, str]) -> None:
    from dflash_supervise.cli.verbs import attach

    assert attach._ssh_destination(target) == where


def test_hosts_and_the_daemon_are_shown(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.hosts = [
        {"host": "lab8", "status": "unreachable", "age_s": 61, "error": {"message": "no route\x1b[2J"}},
    ]
    ran = invoke("host", "ls")
    assert "lab8  unreachable  1m 01s  no route" in ran.out
    assert "pid 4711" in invoke("daemon", "status").out
    assert json.loads(invoke("daemon", "status", "--json").out)["running"] is True


def test_doctor_exits_5_when_a_check_failed_and_shows_its_fix(invoke: Invoke, daemon: DaemonDouble) -> None:
    checks = [
        {"name": "ssh", "ok": True, "detail": "OpenSSH 9.6", "fix": ""},
        {"name": "gpus", "ok": None, "detail": "no driver", "fix": ""},
        {"name": "tmux", "ok": False, "detail": "not found", "fix": "apt-get install tmux"},
    ]
    daemon.operations["doctor"] = [{"state": "running", "lines": []}, {"state": "done", "lines": [], "checks": checks}]
    ran = invoke("doctor", "lab8:/w")
    assert ran.code == 5
    assert ran.out.splitlines() == [
        "\u2713 ssh   OpenSSH 9.6",
        "? gpus  no driver",
        "\u2717 tmux  not found",
        "        fix: apt-get install tmux",
        "3 checks, 1 failed, 1 could not be checked",
    ]
    assert daemon.posts("/doctor") == [{"target": "lab8:/w"}]
    daemon.operations["doctor"] = [{"state": "done", "lines": [], "checks": checks[:2]}]
    assert invoke("doctor").code == 0


def test_config_says_what_is_wrong_and_where(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "dflash.toml").write_text("[policy]\nmax_restart = 2\n")
    ran = invoke("config", "check")
    assert ran.code == 2 and "did you mean max_restarts" in ran.err and "dflash.toml" in ran.err
    assert invoke("ps").code == 2
    (tmp_path / "dflash.toml").write_text("[policy]\nmax_restarts = 2\n")
    shown = invoke("config", "show", "--origin").out
    assert next(line.split() for line in shown.splitlines() if "max_restarts " in line)[1] == "2"
    assert "dflash.toml" in shown
    assert "known_hosts" in invoke("config", "path").out


def test_completion_scripts_exist_for_three_shells(invoke: Invoke) -> None:
    for shell in ("bash", "zsh", "fish"):
        ran = invoke("completion", shell)
        assert ran.code == 0 and "_DFLASH_SUPERVISE_COMPLETE" in ran.out and "_DSUP_COMPLETE" in ran.out


def test_completion_knows_run_names_and_targets(daemon: DaemonDouble) -> None:
    import click

    from dflash_supervise.cli import options
    from dflash_supervise.cli.main import cli

    daemon.runs = [run_doc(), run_doc(name="quick", target="local:/w"), run_doc(name="llama")]
    context = click.Context(cli)
    parameter = click.Argument(["run"])
    assert [item.value for item in options.complete_run(context, parameter, "q")] == ["qwen", "quick"]
    assert [item.value for item in options.complete_target(context, parameter, "local")] == ["local:/w"]


def test_an_answer_that_is_no_json_or_a_server_fault_is_said_plainly(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.refusals["GET", "/runs"] = (500, {"code": "internal", "message": "It broke.", "fix": "", "exit_code": 1})
    ran = invoke("ps")
    assert (ran.code, ran.err) == (1, "error: It broke.\n")
