"""An unpacked agent, as the link puts it on a host."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dflash_supervise.link.bundle import agent_bundle
from tests.integration.agent_eyes.stream import Peer, Toy


@pytest.fixture(scope="session")
def agent_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`<agentdir>`: what `python -IS` runs."""
    bundle = agent_bundle()
    folder = tmp_path_factory.mktemp("agent") / bundle.hash
    with zipfile.ZipFile(io.BytesIO(bundle.data)) as archive:
        archive.extractall(folder)
    (folder / ".complete").touch()
    return folder


@pytest.fixture
def nvml_command(agent_dir: Path) -> list[str]:
    """The probe child's command line."""
    return [sys.executable, "-IS", str(agent_dir), "nvml"]


@pytest.fixture
def no_devices(tmp_path: Path) -> str:
    """A pattern of device files that are not there."""
    return str(tmp_path / "nvidia*")


@pytest.fixture
def some_devices(tmp_path: Path) -> str:
    """A pattern of device files of which one is there."""
    (tmp_path / "nvidia0").touch()
    return os.fspath(tmp_path / "nvidia*")


@pytest.fixture
def start_peer(agent_dir: Path, isolated_home: Path) -> Iterator[Callable[..., Peer]]:
    """Start stream processes; they end with the test, in peace."""
    peers: list[Peer] = []

    def start(**env: str) -> Peer:
        peers.append(Peer(agent_dir, env))
        return peers[-1]

    yield start
    codes = [peer.close() for peer in peers if peer.process.poll() is None]
    assert codes == [0] * len(codes)


@pytest.fixture
def toy(start_peer: Callable[..., Peer], workspace: Path, no_devices: str) -> Iterator[Toy]:
    """A run that is not started yet; whatever still runs at the end is stopped as a person would do it."""
    options = json.dumps({"dev_nvidia_glob": no_devices, "tick_s": 0.3})
    run = Toy(start_peer(DFLASH_AGENT_OPTIONS=options), workspace)
    yield run
    if run.generation and run.last_word() is None:
        run.goal("stop")
        run.ensure_agent()
        run.final()
