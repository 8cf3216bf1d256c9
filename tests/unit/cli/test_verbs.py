"""Verbs about daemon, hosts, configuration and shell; and a daemon that is absent or broken."""

from __future__ import annotations

import json
import subprocess
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
    (state_dir / "token").write_text("x" * 64)
    assert invoke("ps").code == 7
    (state_dir / "daemon.json").write_text("[]")
    torn = invoke("ps")
    assert (torn.code, "no daemon is running" in torn.err) == (7, True)


def test_a_wrong_token_is_said_and_is_no_traceback(invoke: Invoke, daemon: DaemonDouble, state_dir: Path) -> None:
    (state_dir / "token").write_text("wrong" * 8)
    ran = invoke("ps")
    assert ran.code == 1 and "does not take our token" in ran.err


def test_open_prints_the_link_that_logs_in_once(invoke: Invoke, daemon: DaemonDouble) -> None:
    ran = invoke("open", "--print")
    assert (ran.code, ran.out) == (0, f"{daemon.url}/login?token=once\n")


def test_open_of_a_run_prints_a_link_that_leads_to_its_page(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    assert invoke("open", "qwen", "--print").out == f"{daemon.url}/login?token=once&next=/runs/{RUN}\n"
    told = json.loads(invoke("open", "qwen", "--json").out)
    assert (told["url"], told["login"]) == (
        f"{daemon.url}/runs/{RUN}",
        f"{daemon.url}/login?token=once&next=/runs/{RUN}",
    )
    assert invoke("open", "nobody", "--print").code == 102


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


SSH_CONFIG = """
Host lab8
  HostKeyAlias training-box
  UserKnownHostsFile ~/mine %d/more/%k
  GlobalKnownHostsFile /etc/ours/known /etc/ours/more
"""


def ssh_reads(argv: list[str]) -> dict[str, str]:
    """The settings with which this ssh command would connect, as ssh itself tells them."""
    done = subprocess.run(["ssh", "-G", *argv[1:-1]], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.mark.parametrize("folder", ["state", "a 'state' \"of\" mine"])
def test_attach_believes_the_users_own_files_and_the_keys_that_were_accepted_here(
    invoke: Invoke, daemon: DaemonDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / "ssh_config").write_text(SSH_CONFIG)
    monkeypatch.setenv("DFLASH_SUPERVISE_SSH_CONFIG", str(tmp_path / "ssh_config"))
    if not (tmp_path / folder).exists():
        (tmp_path / "state").rename(tmp_path / folder)
        monkeypatch.setenv("DFLASH_SUPERVISE_STATE_DIR", str(tmp_path / folder))
    daemon.runs = [run_doc(target="lab8:2222:/scratch/qwen")]
    bare = json.loads(invoke("attach", "qwen", "--json").out)["argv"]
    assert "-o" not in bare, "no key was accepted, so nothing is to be added"
    own = tmp_path / folder / "known_hosts"
    own.write_text("lab8 ssh-ed25519 AAAA\n")
    told = ssh_reads(json.loads(invoke("attach", "qwen", "--json").out)["argv"])
    assert told["userknownhostsfile"] == ssh_reads(bare)["userknownhostsfile"], "where ssh writes is the user's choice"
    assert told["globalknownhostsfile"] == f"{own} /etc/ours/known /etc/ours/more"
    assert (told["port"], told["hostkeyalias"]) == ("2222", "training-box")


def test_attach_says_what_ssh_says_of_a_broken_configuration_and_needs_none_to_be_shown_without_ssh(
    invoke: Invoke, daemon: DaemonDouble, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state_dir / "known_hosts").write_text("lab8 ssh-ed25519 AAAA\n")
    (tmp_path / "ssh_config").write_text("Nonsense here\n")
    monkeypatch.setenv("DFLASH_SUPERVISE_SSH_CONFIG", str(tmp_path / "ssh_config"))
    daemon.runs = [run_doc()]
    ran = invoke("attach", "qwen", "--dry-run")
    assert (ran.code, ran.out) == (2, "") and "Bad configuration option: nonsense" in ran.err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert invoke("attach", "qwen", "--dry-run").out.startswith("ssh -t -F ")


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


def test_config_check_tells_every_mistake_on_a_line_of_its_own(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "dflash.toml").write_text("[daemon]\nprot = 1\nport = 'x'\n[alert]\nreminders = 2\n")
    ran = invoke("config", "check")
    file = tmp_path / "dflash.toml"
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "error: 3 things are wrong",
        f"  {file}: daemon.prot: unknown key (did you mean port?)",
        f'  {file}: daemon.port: is "x"; it must be a whole number',
        f"  {file}: alert: unknown section (did you mean alerts?)",
    ]
    refused = json.loads(invoke("config", "check", "--json").out)["error"]
    assert (refused["code"], refused["exit_code"]) == ("config_error", 2)
    assert [one["key"] for one in refused["evidence"]] == ["daemon.prot", "daemon.port", "alert"]
    assert "did you mean port" in invoke("ps").err and "alert" not in invoke("ps").err


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
