"""What deploy/ promises: the unit verifies and its command runs as written, the image is sound."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.lab.processes import wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "dflash-supervise.service"
BIN = Path(sys.executable).parent
READY_S = 60.0


@pytest.fixture
def installed_home(isolated_home: Path) -> Path:
    """A home in which the program is where the unit looks for it."""
    place = isolated_home / ".local" / "bin"
    place.mkdir(parents=True)
    (place / "dflash-supervise").symlink_to(BIN / "dflash-supervise")
    return isolated_home


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # systemd's keys are case-sensitive
    parser.read_string(UNIT.read_text())
    return parser


def exec_start(home: Path) -> list[str]:
    return shlex.split(unit()["Service"]["ExecStart"].replace("%h", str(home)))


def test_systemd_accepts_the_unit(installed_home: Path) -> None:
    command = exec_start(installed_home)
    assert os.access(command[0], os.X_OK)
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # a machine without systemd has no use for the unit; the command is run below either way
    verified = subprocess.run(
        [analyze, "--user", "verify", str(UNIT)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_a_restart_of_the_daemon_ends_no_run_and_a_wrong_configuration_is_not_tried_again() -> None:
    service = unit()["Service"]
    assert service["KillMode"] == "process"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"


def test_the_units_command_runs_as_written_and_ends_when_asked(
    installed_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = installed_home / "state" / "dflash-supervise"
    monkeypatch.setenv("DFLASH_SUPERVISE_STATE_DIR", str(state))
    monkeypatch.setenv("DFLASH_SUPERVISE_DAEMON_PORT", "0")
    daemon = subprocess.Popen(exec_start(installed_home), stdin=subprocess.DEVNULL)

    def healthy() -> bool:
        try:
            told = json.loads((state / "daemon.json").read_text())
            return httpx.get(f"{told['url'].rstrip('/')}/healthz", timeout=5).status_code == 200
        except (OSError, ValueError, httpx.HTTPError):
            return False

    try:
        assert wait_until(lambda: daemon.poll() is not None or healthy(), READY_S)
        assert daemon.poll() is None
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=int(unit()["Service"]["TimeoutStopSec"])) == 0
    finally:
        daemon.kill()
        daemon.wait()


def test_the_image_lints() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    hadolint = BIN / "hadolint"
    if not hadolint.exists():
        return  # published for Linux on x86-64 only; CI has it
    linted = subprocess.run(
        [str(hadolint), "--no-color", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_image_runs_without_privileges_and_watches_its_health() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    final = dockerfile.rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\S+)$", final, re.MULTILINE)
    assert users and users[-1] not in ("root", "0")
    assert re.search(r"^HEALTHCHECK .*\\\n\s+CMD .*/healthz", final, re.MULTILINE)
    entry = re.search(r"^ENTRYPOINT (\[.*\])$", final, re.MULTILINE)
    command = re.search(r"^CMD (\[.*\])$", final, re.MULTILINE)
    assert entry is not None and command is not None
    words = json.loads(entry.group(1)) + json.loads(command.group(1))
    assert words == [Path(exec_start(Path("/"))[0]).name, *exec_start(Path("/"))[1:]]


def test_compose_builds_this_image_and_opens_no_port() -> None:
    compose = (DEPLOY / "compose.yml").read_text()
    assert "dockerfile: deploy/Dockerfile" in compose
    assert "network_mode: host" in compose
    assert "ports:" not in compose
