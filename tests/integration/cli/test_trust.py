"""First contact with a host over a real sshd: the fingerprint is shown, and a person decides."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.program import run, terminal
from tests.lab.sshd import Sshd

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def stranger(sshd: Sshd, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A target on a host whose key nobody has seen."""
    sshd.known_hosts.write_text("")
    monkeypatch.setenv("DFLASH_SUPERVISE_DAEMON_PORT", "0")
    yield f"gpubox:{workspace}"
    for one in json.loads(run("ps", "--json", "-a").stdout)["runs"]:
        if not one["final"]:
            run("stop", one["id"], "--yes")
    run("daemon", "stop")


def start(target: str) -> list[str]:
    command = [sys.executable, "-c", "import time; print('step=1 loss=1', flush=True); time.sleep(600)"]
    return ["start", target, "--gpus", "none", "--no-tmux", "--detach", "--name", "first", "--", *command]


def test_without_a_terminal_the_start_is_refused_with_the_line_to_type(stranger: str) -> None:
    ran = run(*start(stranger))
    assert ran.returncode == 5 and "SHA256:" in ran.stderr
    line = next(text for text in ran.stderr.splitlines() if text.startswith("fix:"))
    words = line.split()[1:]
    assert words[:4] == ["dflash-supervise", "host", "trust", stranger]
    assert run(*words[1:]).returncode == 0
    again = run(*start(stranger))
    assert again.returncode == 0, again.stderr


def test_the_users_own_ssh_believes_an_accepted_key_and_writes_it_nowhere(stranger: str, sshd: Sshd) -> None:
    refused = run(*start(stranger)).stderr
    run(*next(text for text in refused.splitlines() if text.startswith("fix:")).split()[2:])
    assert run(*start(stranger)).returncode == 0
    argv = json.loads(run("attach", "first", "--json").stdout)["argv"]
    own = Path(json.loads(run("config", "path", "--json").stdout)["known_hosts"])
    before = own.read_text()
    never = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", "UpdateHostKeys=yes"]
    look = subprocess.run([argv[0], *never, *argv[2:-1], "true"], capture_output=True, text=True, check=False)
    assert look.returncode == 0, look.stderr
    assert (sshd.known_hosts.read_text(), own.read_text()) == ("", before)


def test_a_wrong_fingerprint_is_not_trusted(stranger: str) -> None:
    run("doctor", stranger)
    ran = run("host", "trust", stranger, "--fingerprint", "SHA256:" + "A" * 43)
    assert ran.returncode not in (0, 1), ran.stderr
    assert run(*start(stranger)).returncode == 5


def test_in_a_terminal_one_is_asked_and_the_start_goes_on(stranger: str) -> None:
    asked = terminal(*start(stranger))
    asked.until("Trust this key from now on?")
    assert "is seen for the first time" in asked.seen and "SHA256:" in asked.seen
    asked.type("y\n")
    assert asked.end() == 0, asked.seen
    assert run("status", "first").returncode == 0


def test_a_no_leaves_everything_as_it_was(stranger: str) -> None:
    asked = terminal(*start(stranger))
    asked.until("Trust this key from now on?")
    asked.type("n\n")
    assert asked.end() == 5
    assert json.loads(run("ps", "--json", "-a").stdout)["runs"] == []
