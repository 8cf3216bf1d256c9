"""A daemon's double, and the program run inside the test's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dflash_supervise.cli import goals, main, watch
from tests.unit.cli.double import DaemonDouble, serve


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Invoke = Callable[..., Ran]


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own; no configuration of the user's shines through."""
    monkeypatch.setenv("DFLASH_SUPERVISE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


@pytest.fixture
def daemon(state_dir: Path) -> Iterator[DaemonDouble]:
    double = DaemonDouble()
    server = serve(double, state_dir)
    yield double
    server.shutdown()
    server.server_close()


@pytest.fixture
def invoke(state_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run one command line; looks follow each other without a pause."""
    for module in (watch, goals):
        monkeypatch.setattr(module, "sleep", lambda _seconds: None)

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main.run(list(arguments))
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return call
