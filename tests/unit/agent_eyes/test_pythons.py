"""In which order the trainer's Python is looked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dflash_supervise.agent import doctor, pythons
from dflash_supervise.agent.requests import Requests
from dflash_supervise.agent.runtime import Runtime


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """Interpreters that are links to one program, as those of virtual environments are."""
    found = {name: tmp_path / name / "bin" / "python" for name in ("w/.venv", "conda", "path", "agent", "supervisor")}
    found["path"] = found["path"].with_name("python3")
    for place in found.values():
        place.parent.mkdir(parents=True)
        place.symlink_to(sys.executable)
    return found


def test_the_agents_own_python_and_then_the_supervisors_are_tried_last_and_under_their_own_names(
    tmp_path: Path, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(places["agent"]))
    monkeypatch.setattr(os.path, "exists", lambda path: str(path).startswith(str(tmp_path)))
    environ = {"CONDA_PREFIX": str(tmp_path / "conda"), "PATH": str(places["path"].parent)}
    tried = pythons.candidates(str(tmp_path / "w"), None, environ, [str(places["supervisor"])])
    assert tried == [str(place) for place in places.values()]
    named = pythons.candidates(str(tmp_path / "w"), "/opt/own/python", environ, [str(places["supervisor"])])
    assert named == ["/opt/own/python"]


def test_an_interpreter_that_is_in_path_too_is_tried_once(
    tmp_path: Path, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(places["path"]))
    tried = pythons.candidates(str(tmp_path / "w"), None, {"PATH": str(places["path"].parent)}, [str(places["path"])])
    assert tried.count(str(places["path"])) == 1


def test_preflight_takes_the_supervisors_own_python_when_no_other_has_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a laptop: the environment that holds the supervisor holds torch too, and is not in PATH."""
    poor, own = tmp_path / "bin" / "python3", tmp_path / "env" / "bin" / "python"
    answer = '\\036{"version": "3.12.1", "torch": "2.13.0+cpu", "cuda": null, "error": null}'
    for place, script in ((poor, "exit 3"), (own, f"printf '{answer}'")):
        place.parent.mkdir(parents=True)
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: str(path).startswith(str(tmp_path)) and exists(path))
    monkeypatch.setattr(sys, "executable", str(poor))
    monkeypatch.setenv("PATH", f"{poor.parent}:{os.environ['PATH']}")
    requests = Requests(Runtime.open(root=str(tmp_path / "r")))
    asked = {"workspace": str(tmp_path), "gpus": "none", "bundled": True, "pythons": [str(own)]}
    found = requests.handle("preflight", asked)
    assert found["python"]["path"] == str(own)
    assert [one["path"] for one in found["tried"]] == [str(poor)]


def test_the_doctor_says_what_to_do_when_no_python_can_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons, "candidates", lambda *_: ["/nowhere/python"])
    python = doctor._trainer_python(Runtime.open(root=str(tmp_path / "r")), str(tmp_path), ())
    assert python["ok"] is None and "/nowhere/python cannot be started" in python["detail"]
    assert "start --python" in python["fix"] and "torch 2.11" in python["fix"]
