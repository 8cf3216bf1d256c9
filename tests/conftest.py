"""Fixtures that several folders share: an isolated home, a workspace, fake GPUs, a host over SSH.

Tests in integration, e2e and browser run real processes; after each of them nothing may be left.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dflash_supervise import core
from tests.fakes.gpus import FakeGpus
from tests.lab import processes
from tests.lab.sshd import Sshd

TESTS = Path(__file__).parent
# Only these count for the branch coverage of the core: what is traced takes twice its time.
COVERED = ("contract/", "sim/", "unit/alerts/", "unit/core/", "unit/daemon/", "unit/agent_eyes/")
WITH_PROCESSES = ("integration/", "e2e/", "browser/")
LEAVE_S = 5.0  # what a process that was told to end may take
EXEC_S = 0.03

# Library threads of many test processes would fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def place_of(item: pytest.Item) -> str:
    """Where below tests/ a test's file lies, such as ``unit/core/test_wire.py``."""
    return item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    for item in items:
        if not place_of(item).startswith(COVERED):
            item.add_marker(pytest.mark.no_cover)


@contextlib.contextmanager
def untraced(config: pytest.Config) -> Iterator[None]:
    """Coverage rests: its tracer looks at every call, also of code that it does not count."""
    plugin = config.pluginmanager.getplugin("_cov")
    control = plugin.cov_controller if plugin else None
    if control is None:
        yield
        return
    control.pause()
    try:
        yield
    finally:
        control.resume()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """The core is imported first and traced, for its definitions count; the two thousand tests are not."""
    for module in pkgutil.walk_packages(core.__path__, f"{core.__name__}."):
        importlib.import_module(module.name)
    with untraced(session.config):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """What an uncovered test sets up is not traced either; the plugin leaves out its call alone."""
    with untraced(item.config) if item.get_closest_marker("no_cover") else contextlib.nullcontext():
        return (yield)


@dataclass(frozen=True)
class Laboratory:
    """One test's own corner of the machine.

    Attributes:
        marker: value of the environment variable that every process of the test inherits.
        root: a folder with a short path (a tmux socket's path is limited to 107 bytes); it is removed.
        home: HOME of the supervisor's side, with the XDG folders below it.
        host_home: HOME of a host's side.
        host_env: what a host's sessions have in their environment.
    """

    marker: str
    root: Path
    home: Path
    host_home: Path
    host_env: dict[str, str]

    def leftovers(self) -> list[processes.Process]:
        """Processes of this test other than tmux servers."""
        found = processes.of_test(self.marker, self.root)
        return [process for process in found if not process.is_tmux_server]

    def tmux_servers(self) -> list[processes.Process]:
        return [p for p in processes.of_test(self.marker, self.root) if p.is_tmux_server]


@pytest.fixture
def laboratory() -> Iterator[Laboratory]:
    """The test's folders; on the way out, no process of the test may be left.

    A tmux server stays by design, so it is ended here without a word, and its panes with it. Anything else
    that is still there after a few seconds is killed, and the test fails naming it.
    """
    root = Path(tempfile.mkdtemp(prefix="ws-"))
    home, host_home = root / "home", root / "host"
    for folder in (home, home / "run", home / "tmux", host_home, host_home / "run", host_home / "tmux"):
        folder.mkdir(mode=0o700)
    marker = secrets.token_hex(8)
    host_env = {
        processes.MARKER: marker,
        "HOME": str(host_home),
        "XDG_RUNTIME_DIR": str(host_home / "run"),
        "TMUX_TMPDIR": str(host_home / "tmux"),
        "OMP_NUM_THREADS": "1",
    }
    lab = Laboratory(marker=marker, root=root, home=home, host_home=host_home, host_env=host_env)
    before = os.environ.get(processes.MARKER)
    os.environ[processes.MARKER] = marker
    try:
        yield lab
    finally:
        if before is None:
            os.environ.pop(processes.MARKER, None)
        else:
            os.environ[processes.MARKER] = before
        left = end_everything(lab)
        shutil.rmtree(root, ignore_errors=True)
    if left:
        pytest.fail("the test left processes behind:\n" + "\n".join(str(process) for process in left))


def end_everything(lab: Laboratory) -> list[processes.Process]:
    """End the test's tmux servers, give the rest a moment, kill what stays and return it."""
    for server in lab.tmux_servers():
        processes.send(server)
    processes.wait_until(lambda: _all_gone(lab), LEAVE_S)
    left: dict[tuple[int, int], processes.Process] = {}
    # A keeper brings back its agent: what is killed here may have had a child in the meantime.
    for _ in range(20):
        living, servers = lab.leftovers(), lab.tmux_servers()
        for process in living:
            left.setdefault((process.pid, process.start_ticks), process)
        for process in living + servers:  # a server that was just killed may still be dying: that is no fault
            processes.send(process)
        if not living and not servers:
            break
        processes.wait_until(lambda: not lab.leftovers() and not lab.tmux_servers(), 0.2)
    return list(left.values())


def _all_gone(lab: Laboratory) -> bool:
    """Asked twice: a process in the middle of its exec has neither command line nor environment."""
    if lab.leftovers():
        return False
    time.sleep(EXEC_S)
    return not lab.leftovers()


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> None:
    """Tests with real processes always have the laboratory, and its look at what they left."""
    if place_of(request.node).startswith(WITH_PROCESSES):
        request.getfixturevalue("isolated_home")


@pytest.fixture
def isolated_home(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME and the XDG folders lie in the test's own place; nothing of the user shines through."""
    for name in list(os.environ):
        if name.startswith(("DFLASH_", "TMUX", "SSH_", "FAKE_NVML_")):
            monkeypatch.delenv(name)
    home = laboratory.home
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    monkeypatch.setenv("TMUX_TMPDIR", str(home / "tmux"))
    monkeypatch.setenv("NO_COLOR", "1")
    return home


@pytest.fixture
def workspace(laboratory: Laboratory) -> Path:
    """An empty workspace with a short path."""
    folder = laboratory.root / "w"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def fake_gpus(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    """Eight idle GPUs, seen by every process that the test starts and by every session on its host."""
    gpus = FakeGpus(laboratory.root, n=8)
    for name, value in gpus.env().items():
        monkeypatch.setenv(name, value)
    laboratory.host_env.update(gpus.env())
    return gpus


@pytest.fixture
def start_sshd(
    request: pytest.FixtureRequest, laboratory: Laboratory, isolated_home: Path
) -> Iterator[Callable[..., Sshd]]:
    """Start further hosts: `start_sshd(env={...}, max_sessions=1)`; they end with the test.

    With the fixture `fake_gpus` in the same test, the host has those GPUs.
    """
    if "fake_gpus" in request.fixturenames:
        request.getfixturevalue("fake_gpus")
    hosts: list[Sshd] = []

    def start(*, env: dict[str, str] | None = None, max_sessions: int | None = None) -> Sshd:
        folder = laboratory.root / f"sshd{len(hosts)}"
        folder.mkdir(mode=0o700)
        hosts.append(Sshd(folder, env=laboratory.host_env | (env or {}), max_sessions=max_sessions))
        return hosts[-1]

    yield start
    for host in hosts:
        host.close()


@pytest.fixture
def sshd(start_sshd: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch) -> Sshd:
    """A host called `gpubox`, which plain `ssh gpubox` finds from every process of the test."""
    host = start_sshd()
    monkeypatch.setenv("PATH", host.env()["PATH"])
    return host
