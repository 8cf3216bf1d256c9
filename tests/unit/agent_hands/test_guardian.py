"""The keeper as the agent's guardian: it must not depend on a workspace that may hang or be gone."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.agent import gate, keep


def test_an_agent_is_brought_back_although_the_workspace_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(gate, "start_outside", lambda command, locks: started.append(command))
    keeper = keep.Keeper.__new__(keep.Keeper)
    keeper.run_dir, keeper.private = str(tmp_path / "gone"), str(tmp_path)
    keeper.number, keeper.intent, keeper.agents, keeper.locks = 1, {"agent": ["agent", "run"]}, [], []
    keeper._keep_agent()
    assert started == [["agent", "run"]]


def test_a_guardian_finds_its_way_past_folders_and_files_that_are_none_of_ours(tmp_path: Path) -> None:
    keeper = keep.Keeper.__new__(keep.Keeper)
    keeper.run_dir, keeper.number = str(tmp_path), 1
    for name in ("1", "2", "3", "4", "\u00b2"):
        (tmp_path / "attempts" / name).mkdir(parents=True)
    (tmp_path / "attempts/2/child.json").write_text("[" * 200_000)
    (tmp_path / "attempts/3/child.json").write_text("5")
    assert keeper._needless() is False
    (tmp_path / "final.json").touch()
    assert keeper._needless() is True


def test_an_end_goes_where_there_is_room_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("r", "w"):
        (tmp_path / name).mkdir()
    keeper = keep.Keeper.__new__(keep.Keeper)
    keeper.end, keeper.told = {"code": 7}, False
    home, gone = str(tmp_path / "w" / "exit.json"), str(tmp_path / "gone" / "exit.json")
    keeper.untold = [str(tmp_path / "r" / "exit-1.json"), home, gone]
    full = [str(tmp_path / "r"), str(tmp_path / "w")]
    real = os.rename

    def rename(old: str, new: str) -> None:
        if new.startswith(tuple(full)):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(old, new)

    monkeypatch.setattr(os, "rename", rename)
    assert len(keeper._tell_end()) == 3 and keeper.told is False
    assert len(keeper.untold) == 2, "a folder that is gone takes nothing any more"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    full.pop()
    assert len(keeper._tell_end()) == 1 and keeper.told is True
    full.pop()
    assert keeper._tell_end() == [] and keeper.untold == []
    assert [path.name for path in sorted(tmp_path.rglob("*.json"))] == ["exit-1.json", "exit.json"]
