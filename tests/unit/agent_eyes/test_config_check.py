"""The trainer's opinion of its settings, asked before a launch; a real trainer, which imports no torch for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.agent.config_check import check_config

TRAINER = Path(__file__).parents[3] / "trainer"


def context(cwd: Path, *words: str, python: str = sys.executable, path: Path = TRAINER) -> dict[str, Any]:
    argv = [python, "-m", "dflash_trainer", "train", *words]
    return {"argv": argv, "cwd": str(cwd), "env": {**os.environ, "PYTHONPATH": str(path)}, "umask": None}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--set", "prset=1"], "--set prset=1: prset: unknown key (did you mean preset?)"),
        (["--set", "optim.lr=fast"], "--set optim.lr=fast: optim.lr: want a number, got 'fast'"),
        (["--set", "steps=0"], "--set steps=0: steps: want more than 0, got 0"),
        (["--train", "none.toml"], "none.toml: cannot be read: No such file or directory"),
        (["--nonsense"], "dflash_trainer: unrecognized arguments: --nonsense"),
    ],
)
def test_a_wrong_setting_is_told_in_the_trainers_own_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    assert check_config(context(tmp_path, *words)) == {"settings": "wrong", "message": sentence}


def test_right_settings_are_taken_without_torch_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    home = tmp_path / "workspace"
    home.mkdir()
    asked = context(home, "--set", "steps=3")
    asked["env"]["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{TRAINER}"
    assert check_config(asked) == {"settings": "right", "message": ""}
    assert list(home.iterdir()) == []


def test_the_workspaces_own_file_is_read_as_the_launch_would_read_it(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text("stepz = 3\n")
    assert check_config(context(tmp_path))["message"] == "train.toml: stepz: unknown key (did you mean steps?)"


def test_what_cannot_be_asked_is_not_known(tmp_path: Path) -> None:
    assert check_config(context(tmp_path, python=str(tmp_path / "python")))["settings"] == "unknown"
    broken = tmp_path / "broken" / "dflash_trainer"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()
    (broken / "__main__.py").write_text("raise OSError('the disk is gone')")
    answer = check_config(context(tmp_path, path=broken.parent))
    assert answer == {"settings": "unknown", "message": "OSError: the disk is gone"}
