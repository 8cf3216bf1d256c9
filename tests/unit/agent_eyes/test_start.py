"""A run's agent starts from its own workspace, and only code that nobody else could have put there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dflash_supervise.agent import start

HASH = "ab" * 32


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What was sent to the host, unpacked in another run's workspace."""
    folder = tmp_path / "other" / ".dflash" / "agent" / HASH
    folder.mkdir(parents=True, mode=0o700)
    (folder / "__main__.py").write_text("sent\n")
    (folder / ".complete").touch()
    monkeypatch.setattr(start, "agent_dir", lambda: str(folder))
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Where this run's own copy belongs."""
    base = tmp_path / "w" / ".dflash"
    base.mkdir(parents=True, mode=0o700)
    base.chmod(0o700)
    return base / "agent" / HASH


def run_dir(tmp_path: Path) -> str:
    return str(tmp_path / "w" / ".dflash" / "runs" / "r-2601010000-abcd")


def test_the_code_is_copied_into_the_runs_own_workspace_and_run_from_there(
    tmp_path: Path, sent: Path, mine: Path
) -> None:
    assert start.at_home(run_dir(tmp_path)) == (sys.executable, "-IS", str(mine))
    assert (mine / "__main__.py").read_text() == "sent\n"
    assert [entry.name for entry in mine.parent.iterdir()] == [HASH], "nothing is left beside it"


@pytest.mark.parametrize("level", ["base", "agent", "home"])
def test_code_that_others_could_have_written_is_not_run(tmp_path: Path, sent: Path, mine: Path, level: str) -> None:
    mine.mkdir(parents=True, mode=0o700)
    (mine / "__main__.py").write_text("theirs\n")
    (mine / ".complete").touch()
    {"base": mine.parent.parent, "agent": mine.parent, "home": mine}[level].chmod(0o777)
    assert start.at_home(run_dir(tmp_path)) == (sys.executable, "-IS", str(sent))


def test_a_copy_that_was_never_finished_is_not_run(tmp_path: Path, sent: Path, mine: Path) -> None:
    mine.mkdir(parents=True, mode=0o700)
    (mine / "half.py").touch()
    assert start.at_home(run_dir(tmp_path)) == (sys.executable, "-IS", str(sent))


def test_a_workspace_that_takes_no_files_costs_nothing(tmp_path: Path, sent: Path) -> None:
    (tmp_path / "w").write_text("a file where the workspace was")
    assert start.at_home(run_dir(tmp_path)) == (sys.executable, "-IS", str(sent))


def test_a_workspace_that_was_deleted_is_not_made_again(tmp_path: Path, sent: Path) -> None:
    assert start.at_home(run_dir(tmp_path)) == (sys.executable, "-IS", str(sent))
    assert not (tmp_path / "w").exists()
