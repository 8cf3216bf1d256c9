"""The keeper as the agent's guardian: it must not depend on a workspace that may hang or be gone."""

from __future__ import annotations

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
