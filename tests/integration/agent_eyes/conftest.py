"""An unpacked agent, as the link puts it on a host."""

from __future__ import annotations

import io
import os
import sys
import zipfile
from pathlib import Path

import pytest

from dflash_supervise.link.bundle import agent_bundle


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
