"""State files that are JSON of another shape, or none: they count as absent, and kill nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.agent import brain_state, proc, shapes
from dflash_supervise.agent.files import attempt_numbers, read_json
from dflash_supervise.agent.known_attempt import KnownAttempt
from dflash_supervise.agent.launch import newest_attempt
from dflash_supervise.agent.procs import ProcessSet
from dflash_supervise.agent.progress import read_progress
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.agent.start import _pid
from dflash_supervise.agent.workspace import WorkspaceEyes, WorkspaceLook
from dflash_supervise.core.facts import Missing, ProgressReading, WorkerFact
from dflash_supervise.core.memory import Memory

RUN = "toy-2611300501-ab12"
DEEP = "[" * 200_000
PATIENCE_S = 30.0
CHILD = {"attempt": 1, "pid": 77, "start_ticks": 5, "keeper_pid": 76, "keeper_start_ticks": 4, "boot_id": "a"}
GOOD = {
    "attempt": 1,
    "phase": "training",
    "step": 5,
    "steps_total": 0,
    "phase_limit_s": 10,
    "loss": 2.5,
    "workers": [{"id": "drafter-0", "device": "cuda:0", "step": 4, "alive": True}],
    "checkpoint": {"step": 3, "begun": 1.5, "done": None},
}


def progress(folder: Path, text: str) -> ProgressReading | Missing:
    (folder / "progress.json").write_text(text)
    return read_progress(str(folder), 1)


def test_progress_as_the_trainer_writes_it_is_read(tmp_path: Path) -> None:
    worker = WorkerFact("drafter-0", "cuda:0", 4, True)
    assert progress(tmp_path, json.dumps(GOOD)) == ProgressReading(
        "training",
        5,
        None,
        10.0,
        (worker,),
        loss=2.5,
        checkpoint_step=3,
        checkpoint_begun_at=1.5,
        checkpoint_done=False,
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"checkpoint": [1]}, "checkpoint"),
        ({"checkpoint": {"step": "3"}}, "step"),
        ({"checkpoint": {"begun": []}}, "begun"),
        ({"step": "5"}, "step"),
        ({"step": True}, "step"),
        ({"step": 10**400}, "step"),
        ({"phase": None}, "phase"),
        ({"phase": 5}, "phase"),
        ({"workers": 5}, "workers"),
        ({"workers": {"a": 1}}, "workers"),
        ({"workers": [5]}, "workers"),
        ({"workers": [{}]}, "id"),
        ({"workers": [{"id": "a", "alive": 1}]}, "alive"),
        ({"workers": [{"id": "a", "device": 5}]}, "device"),
        ({"loss": "nan"}, "loss"),
        ({"loss": 10**400}, "loss"),
        ({"phase_limit_s": {}}, "phase_limit_s"),
        ({"attempt": [1]}, "attempt"),
        ({"attempt": 2}, "attempt 2"),
    ],
)
def test_progress_of_another_shape_is_missing_and_names_its_key(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    found = progress(tmp_path, json.dumps({**GOOD, **changes}))
    assert isinstance(found, Missing) and named in found.reason


@pytest.mark.parametrize(
    "text", ["", "5", "[]", "null", DEEP, '{"attempt":' * 100_000, '{"attempt":1,"phase":"training","step":1e400}']
)
def test_a_progress_file_that_holds_something_else_is_missing(tmp_path: Path, text: str) -> None:
    found = progress(tmp_path, text)
    assert isinstance(found, Missing) and found.reason.startswith("progress.json ")


def test_json_that_is_nested_too_deeply_is_no_object(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a":' + DEEP)
    assert read_json(str(path)) is None


def test_only_folders_named_as_we_do_are_attempts(tmp_path: Path) -> None:
    assert attempt_numbers(str(tmp_path)) == () and newest_attempt(str(tmp_path)) == 0
    for name in ("1", "2", "10", "\u00b2", "\u0663", "0", "03", "x", "9" * 200):
        (tmp_path / "attempts" / name).mkdir(parents=True)
    assert attempt_numbers(str(tmp_path)) == (1, 2, 10) and newest_attempt(str(tmp_path)) == 10


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": "x"},
        {"pid": 10**400},
        {"pid": True},
        {"start_ticks": None},
        {"start_ticks": 1e400},
        {"keeper_start_ticks": None},
        {"keeper_pid": [76]},
        {"boot_id": None},
        {"boot_id": 5},
        {"at_s": "now"},
        {"log": 5},
    ],
)
def test_a_child_of_another_shape_is_none(changes: dict[str, Any]) -> None:
    assert shapes.child(CHILD) == CHILD
    assert shapes.child({**CHILD, **changes}) is None
    assert shapes.child({"boot_id": "a"}) is None and shapes.child(None) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("attempts/1/child.json", '{"pid":"x"}'),
        ("attempts/1/child.json", '{"a":1}'),
        ("attempts/1/exit.json", '{"code":0,"signal":null,"ran_s":"abc"}'),
        ("attempts/1/exit.json", '{"code":"0","signal":null}'),
        ("attempts/1/exit.json", "{}"),
        ("attempts/1/launch.json", '{"at_s":"x"}'),
        ("attempts/1/progress.json", '{"attempt":1,"phase":"training","step":5,"checkpoint":[1]}'),
        ("attempts/1/done.json", DEEP),
        ("machine.json", '{"gpus":5}'),
        ("machine.json", '{"gpus":[[1]]}'),
        ("spec.json", '{"a":' + DEEP),
    ],
)
def test_a_look_takes_a_file_of_another_shape_for_none(tmp_path: Path, name: str, text: str) -> None:
    run_dir = tmp_path / ".dflash" / "runs" / RUN
    (run_dir / "attempts" / "1").mkdir(parents=True)
    (run_dir / name).write_text(text)
    look = WorkspaceEyes(str(run_dir), RUN).look(5.0)
    assert (look.child, look.exit, look.launch, look.machine, look.spec) == (None, None, None, None, None)
    assert look.newest == 1 and not look.done and isinstance(look.progress, Missing)


def test_a_look_that_fails_is_a_blindness_with_its_text_and_the_next_one_may_see(tmp_path: Path) -> None:
    class Eyes(WorkspaceEyes):
        fault: Exception | None = TypeError("a fault of ours")

        def look(self, now_s: float) -> WorkspaceLook:
            if self.fault is not None:
                raise self.fault
            return WorkspaceLook(now_s, True)

    eyes = Eyes(str(tmp_path), RUN)
    eyes.begin(1.0)
    look, blind_s = eyes.take(3.0, PATIENCE_S)
    assert (look, blind_s, eyes.answered) == (None, 2.0, False) and "a fault of ours" in eyes.trouble
    eyes.fault = None
    eyes.begin(4.0)
    assert eyes.take(4.0, PATIENCE_S) == (WorkspaceLook(4.0, True), 0.0) and eyes.trouble == ""


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1}',
        '{"attempt":"x","launch":null,"child":{}}',
        json.dumps({"attempt": 10**400, "launch": None, "child": CHILD}),
        json.dumps({"attempt": 1, "launch": 5, "child": CHILD}),
        json.dumps({"attempt": 1, "launch": None, "child": {"pid": 5}}),
        DEEP,
    ],
)
def test_a_known_attempt_of_another_shape_is_forgotten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "attempt.json"
    path.write_text(text)
    known = KnownAttempt(str(path))
    assert known.alone(1.0) is None
    assert known.complete(WorkspaceLook(1.0, True)).newest == 0


@pytest.mark.parametrize(
    "text",
    [
        '{"memory":{"last_at_s":1' + "0" * 400 + "}}",
        '{"memory":{"last_at_s":1e400}}',
        '{"memory":5}',
        '{"memory":{"attempt":{"number":1e400}}}',
        '{"after":5}',
        "{}",
        '{"memory":' + DEEP,
    ],
)
@pytest.mark.parametrize("spare", [False, True])
def test_a_memory_of_another_shape_is_lost_and_said_so(tmp_path: Path, text: str, spare: bool) -> None:
    for folder in ("w", "r"):
        (tmp_path / folder).mkdir()
    (tmp_path / "w" / "brain.json").write_text(text)
    if spare:
        (tmp_path / "r" / "brain.json").write_text('{"after":["x",1e400],"memory":5}')
    found = brain_state.load(str(tmp_path / "w"), str(tmp_path / "r"))
    assert found.memory == Memory() and found.lost is not None and found.lost.startswith("brain.json ")


@pytest.mark.parametrize("members", ["x", 5, [5], [[1]], [["1", 2]], [[1e400, 2]], None])
def test_a_set_of_another_shape_is_forgotten(tmp_path: Path, members: Any) -> None:
    path = tmp_path / "set-1.json"
    path.write_text(json.dumps({"boot_id": proc.boot_id(), "members": members}))
    assert shapes.members(str(path), proc.boot_id()) == ()
    ProcessSet(RUN, 1, memory_path=str(path))
    path.write_text(json.dumps({"boot_id": proc.boot_id(), "members": [[7, 8]]}))
    assert shapes.members(str(path), proc.boot_id()) == ((7, 8),)


@pytest.mark.parametrize("pid", ["x", -1, 0, 10**400, [1], None])
def test_an_agent_that_does_not_say_who_it_is_has_no_pid(tmp_path: Path, pid: Any) -> None:
    runtime = Runtime.open(root=str(tmp_path / "r"))
    (Path(runtime.run(RUN)) / "agent.json").write_text(json.dumps({"pid": pid}))
    assert _pid(runtime, RUN) is None
