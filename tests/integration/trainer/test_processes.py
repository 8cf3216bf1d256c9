"""Worker processes: the same numbers as threads, and no process left however any of them ends."""

from __future__ import annotations

import os
import shutil
import signal
import time

from tests.integration.trainer.conftest import Launch, Trainer
from tests.lab import processes

PROCESSES = ("--set", "layout.workers=processes")
PAIR = (*PROCESSES, "--set", "layout.drafter_workers=1")  # each process costs an import of torch
GONE_S = 5.0


def there(trainer: Trainer) -> list[str]:
    """Workers that are still in the process table, the dead left out."""
    found = {name: processes.look(pid) for name, pid in trainer.workers().items()}
    return [name for name, process in found.items() if process is not None and process.state not in "ZX"]


def there_after_a_moment(trainer: Trainer) -> list[str]:
    end = time.monotonic() + GONE_S
    while there(trainer) and time.monotonic() < end:
        time.sleep(0.02)
    return there(trainer)


def test_processes_continue_threads_and_threads_processes_without_changing_a_bit(launch: Launch) -> None:
    """Threads to the end; then processes from the middle, asked to stop as a group; then threads again."""
    options = ("--set", "steps=12", "--set", "checkpoint.every_steps=4", "--set", "checkpoint.keep=9")
    whole = launch(*options)
    assert whole.wait() == 0, whole.log()
    want = whole.losses()
    (whole.output / "metrics.jsonl").unlink()
    for step in (8, 12):
        shutil.rmtree(whole.output / "checkpoints" / f"step-{step:08d}")
    cut = launch(*options, *PROCESSES, attempt=2, group=True, fault="slow@6:2")  # or it may be through before we ask
    cut.until(lambda: cut.step() >= 6)
    assert set(there(cut)) == {"target-0", "drafter-0", "drafter-1"}
    os.killpg(cut.process.pid, signal.SIGTERM)
    assert cut.wait() == 143, cut.log()
    assert there(cut) == []
    assert "terminated with" not in cut.log()  # SIGTERM reached them too, and was left to the loop
    assert "resumed=step-00000004" in cut.log()
    reached = cut.step()
    assert f"step={reached} saved=step-{reached:08d}" in cut.log()
    last = launch(*options, attempt=3)
    assert last.wait() == 0, last.log()
    assert f"resumed=step-{reached:08d}" in last.log()
    assert last.losses() == {step: want[step] for step in range(5, 13)}


def test_an_exception_in_a_worker_process_is_printed_once_and_ends_all_with_its_code(launch: Launch) -> None:
    trainer = launch(*PAIR, fault="oom@3")
    assert trainer.wait() == 73, trainer.log()
    assert there(trainer) == []
    log = trainer.log()
    assert "Process drafter-0:\nTraceback (most recent call last):\n" in log
    assert log.count("Traceback (most recent call last)") == 1
    assert "reason=drafter-0: OutOfMemoryError: CUDA out of memory. Tried to allocate" in log
    assert trainer.step() == 2
    workers = trainer.progress()["workers"]
    assert isinstance(workers, list)
    assert {w["id"]: w["alive"] for w in workers} == {"target-0": True, "drafter-0": False}


def test_a_killed_worker_is_named_and_takes_the_others_along(launch: Launch) -> None:
    trainer = launch(*PAIR, "--set", "steps=4000")
    trainer.until(lambda: trainer.step() >= 2)
    pid = trainer.workers()["target-0"]
    os.kill(pid, signal.SIGKILL)
    assert trainer.wait() == 70, trainer.log()
    assert there(trainer) == []
    assert f"target-0 (pid {pid}) terminated with signal SIGKILL" in trainer.log()


def test_a_worker_that_hears_nothing_ends_with_a_trainer_that_is_killed(launch: Launch) -> None:
    trainer = launch(*PAIR, fault="hang-lock@2")
    trainer.until(lambda: "injecting=hang-lock" in trainer.log())
    assert set(there(trainer)) == {"target-0", "drafter-0"}
    trainer.process.kill()
    assert trainer.wait() == -signal.SIGKILL
    assert there_after_a_moment(trainer) == []


def test_the_remedy_takes_processes_whose_stacks_show_and_which_leave_when_they_hang(launch: Launch) -> None:
    """The attempt after a race: asked for by the environment, whatever the settings say about threads."""
    trainer = launch("--race-mitigation", "none", fault="hang-lock@3", remedies="another_port,process_workers")
    trainer.until(lambda: trainer.log().count("injecting=hang-lock") == 2 and trainer.step() == 2)
    assert "process_workers: workers=processes instead of threads" in trainer.log()
    stacks = trainer.folder / "stacks.txt"
    trainer.process.send_signal(signal.SIGUSR1)
    trainer.until(lambda: stacks.read_text().count("_wait_on_a_lock_for_ever") == 2)
    for name, pid in trainer.workers().items():
        assert f"{name} (pid {pid}):\n" in stacks.read_text()
    trainer.process.terminate()
    assert trainer.wait() == 143, trainer.log()
    assert there(trainer) == []


def test_a_stall_is_ended_from_inside_with_the_stacks_of_all_processes(launch: Launch) -> None:
    trainer = launch(*PAIR, "--set", "limits.stall_s=5", fault="hang-hard@2")
    assert trainer.wait() == 79, trainer.log()
    assert there_after_a_moment(trainer) == []
    stacks = (trainer.folder / "stacks.txt").read_text()
    main, _, workers = stacks.partition("target-0 (pid ")
    assert "_wait_on_a_lock_for_ever" in main
    assert "in target_worker" in workers and "in drafter_worker" in workers
