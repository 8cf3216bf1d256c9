"""spec.json: what is refused, who wins, and which copy counts."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.agent import spec_store
from dflash_supervise.agent.files import UnsafeFolder
from dflash_supervise.agent.goals import Goals
from dflash_supervise.agent.runtime import Runtime, lock_held, take_lock
from dflash_supervise.agent.spec import SpecError, parse_spec
from dflash_supervise.agent.spec_store import (
    NoContext,
    NoWorkspace,
    SpecConflict,
    apply_spec,
    bring_home,
    check_workspace,
    newest,
)
from dflash_supervise.core.facts import Goal

RUN = "toy-2611300501-ab12"


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime.open(root=str(tmp_path / "r"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    folder.mkdir(mode=0o700)
    return folder


def body(place: Path, generation: int = 1, want: str = "run", **changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "run_id": RUN,
        "name": "toy",
        "workspace": str(place),
        "generation": generation,
        "owner": "laptop",
        "goal": {"want": want},
        "kind": "foreign",
        "gpus": "all",
        "policy": {"preset": "careful"},
        "highest_attempt": 0,
        "output_dir": str(place / "runs"),
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"schema": 2}, "spec.schema"),
        ({"run_id": "../x"}, "spec.run_id"),
        ({"generation": -1}, "spec.generation"),
        ({"generation": True}, "spec.generation"),
        ({"goal": {"want": "pause"}}, "spec.goal|want|pause"),
        ({"goal": {"want": "hold", "hold_for_s": -1}}, "hold_for_s"),
        ({"kind": "adopted"}, "spec.adopt"),
        ({"gpus": 3}, "spec.gpus"),
        ({"policy": {"preset": "wild"}}, "policy.preset"),
        ({"policy": {"grace_s": "long"}}, "Policy.grace_s"),
        ({"owner": ""}, "spec.owner"),
        ({"accepted": "x"}, "spec.accepted"),
        ({"accepted": 5}, "spec.accepted"),
        ({"accepted": {"boottime_s": "x"}}, "spec.accepted.boottime_s"),
        ({"accepted": {"boottime_s": 10**400}}, "spec.accepted.boottime_s"),
        ({"goal": {"want": "hold", "hold_for_s": 10**400}}, "hold_for_s"),
        ({"goal": {"want": "hold", "hold_for_s": float("inf")}}, "hold_for_s"),
        ({"goal": {"want": "hold", "hold_for_s": float("nan")}}, "hold_for_s"),
        ({"goal": {"want": "hold", "hold_for_s": 367 * 86400}}, "hold_for_s"),
        ({"generation": 10**400}, "spec.generation"),
        ({"highest_attempt": 1e400}, "spec.highest_attempt"),
        ({"policy": {"grace_s": 10**400}}, "Policy.grace_s"),
        ({"policy": {"grace_s": float("nan")}}, "Policy.grace_s"),
        ({"policy": {"remedies": 5}}, "Policy.remedies"),
        ({"policy": []}, "spec.Policy"),
        ({"policy": 5}, "spec.Policy"),
        ({"adopt": {"pid": 10**400}}, "spec.Adopt.pid"),
        ({"output_dir": ["x"]}, "spec.output_dir"),
        ({"workspace": "/a\0b"}, "spec.workspace"),
    ],
)
def test_a_spec_that_is_none_names_its_key(place: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        parse_spec(body(place, **changes))


def test_a_change_made_on_an_older_generation_is_a_conflict(runtime: Runtime, place: Path) -> None:
    apply_spec(runtime, str(place), body(place, 1), 0)
    apply_spec(runtime, str(place), body(place, 2, "hold"), 1)
    with pytest.raises(SpecConflict) as conflict:
        apply_spec(runtime, str(place), body(place, 2, "stop"), 1)
    assert (conflict.value.generation, conflict.value.owner) == (2, "laptop")
    with pytest.raises(SpecConflict, match="not newer"):
        apply_spec(runtime, str(place), body(place, 2, "stop"), 2)
    found = newest(runtime, str(place), RUN)
    assert found is not None and (found["generation"], found["goal"]["want"]) == (2, "hold")


def test_the_same_spec_again_changes_nothing(runtime: Runtime, place: Path) -> None:
    first = apply_spec(runtime, str(place), body(place), 0)
    assert apply_spec(runtime, str(place), body(place), 0) == first


def test_a_stop_reaches_the_agent_though_the_workspace_refuses(runtime: Runtime, place: Path) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    (place / ".dflash").chmod(0o777)
    assert apply_spec(runtime, str(place), body(place, 2, "stop"), 1).generation == 2, "in force is taken"
    goals = Goals(runtime, RUN, 0.0, "boot")
    assert goals.update(None)
    assert goals.goal(stop_file=False) == Goal("stop", 2)


@pytest.mark.parametrize("gone", [".", ".dflash", f".dflash/runs/{RUN}"])
def test_a_stop_is_taken_where_the_run_lost_its_folder_and_makes_none(runtime: Runtime, place: Path, gone: str) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    shutil.rmtree(place / gone)
    assert apply_spec(runtime, str(place), body(place, 2, "stop"), 1).want == "stop"
    assert not (place / ".dflash/runs" / RUN).exists()
    known = newest(runtime, str(place), RUN)
    assert known is not None and known["generation"] == 2


def test_a_goal_other_than_stop_is_refused_where_the_workspace_is_gone(runtime: Runtime, place: Path) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    shutil.rmtree(place)
    with pytest.raises(NoWorkspace, match="is not a folder"):
        apply_spec(runtime, str(place), body(place, 2), 1)
    known = newest(runtime, str(place), RUN)
    assert known is not None and known["generation"] == 1 and not place.exists()


def test_a_stop_on_a_full_disk_is_taken_and_goes_home_when_there_is_room(
    runtime: Runtime, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    real = spec_store.write_json

    def full(path: str, value: object) -> None:
        if path.startswith(str(place)):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, value)

    monkeypatch.setattr(spec_store, "write_json", full)
    assert apply_spec(runtime, str(place), body(place, 2, "stop"), 1).generation == 2
    with pytest.raises(OSError, match="No space"):
        apply_spec(runtime, str(place), body(place, 3), 2)
    known = newest(runtime, str(place), RUN)
    assert known is not None and known["generation"] == 2, "what was refused is not in force"
    monkeypatch.undo()
    path = place / ".dflash/runs" / RUN / "spec.json"
    assert json.loads(path.read_text())["generation"] == 1
    bring_home(runtime, str(place), RUN)
    assert json.loads(path.read_text()) == known


def test_a_goal_for_another_attempt_takes_final_and_stop_file_away(runtime: Runtime, place: Path) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    folder = place / ".dflash/runs" / RUN
    for name in ("final.json", "STOP"):
        (folder / name).touch()
    (Path(runtime.run(RUN)) / "final.json").touch()
    apply_spec(runtime, str(place), body(place, 2, "hold"), 1)
    apply_spec(runtime, str(place), body(place, 3), 2)
    assert (folder / "final.json").exists()
    again = {"want": "run", "hold_for_s": None, "end_attempt": 1}
    apply_spec(runtime, str(place), body(place, 4, goal=again), 3, context={"argv": ["train"]})
    left = [(folder / "final.json"), folder / "STOP", Path(runtime.in_run(RUN, "final.json"))]
    assert not [path for path in left if path.exists()]


def test_a_restart_of_what_could_not_be_started_again_is_refused(runtime: Runtime, place: Path) -> None:
    apply_spec(runtime, str(place), body(place), 0, context={"argv": ["train"]})
    again = {"want": "run", "hold_for_s": None, "end_attempt": 1}
    assert apply_spec(runtime, str(place), body(place, 2, goal=again), 1).end_attempt == 1
    Path(runtime.context_path(RUN)).unlink()
    with pytest.raises(NoContext, match="launch context of attempt 1 is gone from this host"):
        apply_spec(runtime, str(place), body(place, 3, goal=again), 2)
    known = newest(runtime, str(place), RUN)
    assert known is not None and known["generation"] == 2, "what was refused is not in force"
    adopted = body(place, 3, goal=again, kind="adopted", adopt={"pid": 5})
    assert apply_spec(runtime, str(place), adopted, 2).generation == 3, "that one was never launched by us"
    assert apply_spec(runtime, str(place), body(place, 4, "stop"), 3).want == "stop"


def test_a_stop_is_taken_by_whichever_place_has_room_and_refused_only_where_neither_has(
    runtime: Runtime, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    real, full = spec_store.write_json, [runtime.root]

    def write(path: str, value: object) -> None:
        if path.startswith(tuple(full)):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, value)

    monkeypatch.setattr(spec_store, "write_json", write)
    assert apply_spec(runtime, str(place), body(place, 2, "stop"), 1).generation == 2
    known = newest(runtime, str(place), RUN)
    assert known is not None and known["goal"]["want"] == "stop", "the workspace has it"
    assert apply_spec(runtime, str(place), body(place, 3, "stop"), 2).generation == 3, "counted from the newer copy"
    full.append(str(place))
    with pytest.raises(OSError, match="No space"):
        apply_spec(runtime, str(place), body(place, 4, "stop"), 3)


def test_a_copy_of_another_shape_refuses_no_stop(runtime: Runtime, place: Path) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    Path(runtime.in_run(RUN, "spec.json")).write_text(json.dumps(body(place, 1, accepted="x")))
    assert apply_spec(runtime, str(place), body(place, 2, "stop"), 1).generation == 2


def test_a_lock_whose_owner_cannot_be_written_down_is_held_all_the_same(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    path = runtime.lock_path("ws-1.lock")
    lock = take_lock(path, {"pid": 1})
    assert lock is not None and lock_held(path) is True
    lock.release()


@pytest.mark.parametrize("part", [".dflash", ".dflash/runs", f".dflash/runs/{RUN}"])
def test_a_run_folder_that_others_can_write_is_refused(runtime: Runtime, place: Path, part: str) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    (place / part).chmod(0o775)
    with pytest.raises(UnsafeFolder, match="others"):
        check_workspace(str(place), RUN)


def test_a_run_folder_behind_a_link_is_refused(runtime: Runtime, place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (place / ".dflash").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFolder, match="link"):
        apply_spec(runtime, str(place), body(place), 0)


def test_a_spec_that_does_not_parse_keeps_the_last_good_one(runtime: Runtime, place: Path) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    goals = Goals(runtime, RUN, 0.0, "boot")
    goals.update(None)
    huge = {"want": "hold", "hold_for_s": 10**400}
    for wrong in (body(place, 2, "pause"), body(place, 2, accepted="x"), body(place, 2, goal=huge)):
        Path(runtime.in_run(RUN, "spec.json")).write_text(json.dumps(wrong))
        assert not goals.update(None)
        assert goals.goal(stop_file=False).generation == 1
        assert "the spec is kept as it was" in goals.trouble


def test_an_older_copy_never_comes_back_into_force(runtime: Runtime, place: Path) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    apply_spec(runtime, str(place), body(place, 2, "stop"), 1)
    goals = Goals(runtime, RUN, 0.0, "boot")
    goals.update(body(place, 1))
    assert goals.goal(stop_file=False) == Goal("stop", 2)


def test_a_stop_file_outranks_the_spec(runtime: Runtime, place: Path) -> None:
    apply_spec(runtime, str(place), body(place), 0)
    goals = Goals(runtime, RUN, 0.0, "boot")
    goals.update(None)
    assert goals.goal(stop_file=True) == Goal("stop", 1)


def test_a_hold_counts_from_its_acceptance_and_begins_anew_after_a_reboot(place: Path) -> None:
    accepted = {"boottime_s": 100.0, "boot_id": "a"}
    spec = parse_spec(body(place, goal={"want": "hold", "hold_for_s": 60}, accepted=accepted))
    assert spec.goal("a", 500.0).hold_until_s == 160.0
    assert spec.goal("b", 500.0).hold_until_s == 560.0
