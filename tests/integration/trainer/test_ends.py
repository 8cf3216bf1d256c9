from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest

from tests.integration.trainer.conftest import Launch


@pytest.mark.parametrize(
    ("fault", "code", "line"),
    [
        ("thread-exit@3", 70, "drafter-1 ended without finishing"),
        ("oom@3", 73, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        ("disk-full@3", 74, "OSError: [Errno 28] No space left on device"),
        ("nan@3", 76, "gradient of fc.weight is not finite in 3 steps in a row"),
        ("fx-race@3", 78, "RuntimeError: Detected that you are using FX to symbolically trace"),
        ("segfault@3", -signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
        ("sigkill@3", -signal.SIGKILL, "injecting=sigkill"),
        ("import-error", 70, "ModuleNotFoundError: No module named 'dflash_flash_kernels'"),
        ("exit0@3", 0, "injecting=exit0"),
    ],
)
def test_a_fault_ends_the_process_with_its_code_and_no_completion_marker(
    launch: Launch, fault: str, code: int, line: str
) -> None:
    trainer = launch(fault=fault)
    assert trainer.wait() == code, trainer.log()
    assert line in trainer.log()
    assert trainer.done() is None
    if "@3" in fault and code != 76:
        assert trainer.step() == 2


def test_a_workers_exception_is_printed_once_with_its_thread_and_shown_in_progress(launch: Launch) -> None:
    trainer = launch(fault="exception@2")
    assert trainer.wait() == 70
    assert trainer.log().count("Traceback (most recent call last)") == 1
    assert "Exception in thread drafter-1:\nTraceback" in trainer.log()
    workers = trainer.progress()["workers"]
    assert isinstance(workers, list)
    assert {w["id"]: w["alive"] for w in workers} == {"target-0": True, "drafter-0": True, "drafter-1": False}


def test_a_fault_fires_in_its_attempt_alone(launch: Launch) -> None:
    options = ("--set", "steps=4", "--set", "checkpoint.every_steps=1")
    assert launch(*options, fault="exception@3,keyerror@4:2").wait() == 70
    second = launch(*options, fault="exception@3,keyerror@4:2", attempt=2)
    assert second.wait() == 70
    assert "KeyError" in second.log()
    third = launch(*options, fault="exception@3,keyerror@4:2", attempt=3)
    assert third.wait() == 0, third.log()


def test_a_hang_is_silent_shows_its_stacks_and_still_stops_when_asked(launch: Launch) -> None:
    trainer = launch(fault="hang-lock@3")
    trainer.until(lambda: "injecting=hang-lock" in trainer.log() and trainer.step() == 2)
    time.sleep(0.3)  # the last lines of the step before
    size, progress = len(trainer.log()), (trainer.folder / "progress.json").stat().st_mtime_ns
    trainer.process.send_signal(signal.SIGUSR1)
    stacks = trainer.folder / "stacks.txt"
    trainer.until(lambda: stacks.read_text().count("_wait_on_a_lock_for_ever") == 2)
    time.sleep(1.2)
    assert len(trainer.log()) == size  # a dump must not look like growth
    assert (trainer.folder / "progress.json").stat().st_mtime_ns == progress
    trainer.process.terminate()
    assert trainer.wait() == 143


def test_the_loop_itself_hanging_is_ended_from_inside_with_stacks(launch: Launch) -> None:
    trainer = launch("--set", "limits.stall_s=2", fault="hang-hard@3")
    assert trainer.wait() == 79, trainer.log()
    assert "_wait_on_a_lock_for_ever" in (trainer.folder / "stacks.txt").read_text()


def test_workers_that_wait_for_one_that_hangs_name_it(launch: Launch) -> None:
    trainer = launch("--set", "limits.barrier_s=2", fault="hang-one@3")
    assert trainer.wait() == 79, trainer.log()
    assert re.search(r"reason=.* for 2 s; behind: drafter-1 at step 2", trainer.log())


def test_a_stopped_process_goes_on_after_sigcont(launch: Launch) -> None:
    trainer = launch("--set", "steps=5", fault="stop@3")
    stat = Path(f"/proc/{trainer.process.pid}/stat")
    trainer.until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    assert trainer.step() == 2
    trainer.process.send_signal(signal.SIGCONT)
    assert trainer.wait() == 0


def test_with_the_old_behaviour_one_worker_dies_and_the_process_lives(launch: Launch) -> None:
    trainer = launch("--race-mitigation", "none", "--set", "steps=4000", fault="fx-race@3")

    def one_is_dead_and_the_other_moves() -> bool:
        workers = {w["id"]: w for w in trainer.progress()["workers"]}  # type: ignore[attr-defined]
        dead, other = workers.get("drafter-1"), workers.get("drafter-0")
        return bool(dead and other and not dead["alive"] and dead["step"] == 2 and other["step"] > 8)

    trainer.until(one_is_dead_and_the_other_moves)
    assert "Exception in thread drafter-1:" in trainer.log()
    trainer.process.terminate()
    assert trainer.wait() == 143


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (("--set", "draft.blok=4"), 64, "draft.blok: unknown key (did you mean draft.block?)"),
        (("--train", "none.toml"), 64, "none.toml: cannot be read"),
        (("--stepps=3",), 64, "unrecognized arguments: --stepps=3"),
        (("--set", 'data.text="none.txt"'), 65, "none.txt: no such file"),
    ],
)
def test_the_users_mistake_has_one_line_and_no_traceback(
    launch: Launch, options: tuple[str, ...], code: int, line: str
) -> None:
    trainer = launch(*options)
    assert trainer.wait() == code, trainer.log()
    assert line in trainer.log()
    assert "Traceback" not in trainer.log()


def test_life_shows_before_torch_is_imported_and_a_file_in_the_folder_is_used(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text("steps = 3\n")
    trainer = launch(fault="import-error", fresh=True)
    assert trainer.wait() == 70
    assert (trainer.progress()["phase"], trainer.progress()["steps_total"]) == ("loading", 3)


def test_the_plan_prints_layout_and_settings_and_starts_nothing(launch: Launch) -> None:
    trainer = launch("--plan")
    assert trainer.wait() == 0
    assert trainer.log().startswith("# targets=cpu drafters=cpu,cpu")
    assert "draft.block = 8" in trainer.log()
    assert not trainer.output.exists()


def test_without_any_configuration_the_demo_is_what_is_trained(launch: Launch) -> None:
    trainer = launch("--plan", preset=None)
    assert trainer.wait() == 0
    nothing_given = trainer.log()
    named = launch("--plan", "--set", 'preset="demo"', preset=None, attempt=2)
    assert named.wait() == 0
    assert nothing_given == named.log()


def test_an_export_is_there_and_the_marker_carries_the_token(launch: Launch) -> None:
    trainer = launch("--set", "steps=6", fresh=True)
    assert trainer.wait() == 0, trainer.log()
    done = trainer.done()
    assert done is not None
    assert done["run"] == "r-1:1"
    assert isinstance(done["tau_start"], float) and isinstance(done["tau"], float)
    assert done["identical"] == done["prompts"] == 2
    lines = (trainer.output / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["final"] is True
    config = json.loads((Path(str(done["export"])) / "config.json").read_text())
    assert config["architectures"] == ["DFlashDraftModel"]
    assert trainer.progress()["phase"] == "done"
    line = re.search(r"step=6 loss=\d+\.\d+ tok/s=\d+ tau=\d+\.\d+", trainer.log())
    assert line is not None, trainer.log()
