from __future__ import annotations

import random
from pathlib import Path

from tests.integration.trainer.conftest import Launch

OPTIONS = ("--set", "steps=24", "--set", "checkpoint.every_steps=5", "--set", "optim.batch_rows=16")


def test_kill_9_at_random_steps_changes_no_bit_of_any_loss(launch: Launch, tmp_path: Path) -> None:
    """Three kills, each attempt with another number of workers, against one run that nobody touched."""
    chance = random.Random()
    kills = sorted(chance.sample(range(2, 23), 3))
    print("killing in steps", kills)  # shown by pytest when the test fails
    whole = launch(*OPTIONS, run="whole")
    assert whole.wait() == 0
    want = whole.losses()
    assert sorted(want) == list(range(1, 25))
    (tmp_path / "output").rename(tmp_path / "whole")
    for attempt, step in enumerate(kills, start=1):
        trainer = launch(*OPTIONS, "--set", f"layout.drafter_workers={attempt}", attempt=attempt + 1, run="cut")
        trainer.until(lambda t=trainer, s=step: t.step() >= s)
        trainer.process.kill()
        assert trainer.wait() == -9
        assert trainer.done() is None
    last = launch(
        *OPTIONS, "--set", "layout.drafter_workers=4", "--set", "layout.target_workers=2", attempt=9, run="cut"
    )
    assert last.wait() == 0, last.log()
    assert "resumed=step-" in last.log()
    assert last.losses() == want
    assert all(len(losses) == 1 for losses in want.values())
    done = last.done()
    assert done is not None and done["run"] == "cut:9" and done["step"] == 24


def test_sigterm_saves_what_was_reached_and_exits_143(launch: Launch) -> None:
    first = launch("--set", "steps=400", "--set", "checkpoint.every_steps=300")
    first.until(lambda: first.step() >= 3)
    first.process.terminate()
    assert first.wait() == 143, first.log()
    reached = first.step()
    saved = first.progress()["checkpoint"]
    assert isinstance(saved, dict)
    assert saved["step"] == reached and saved["done"] >= saved["begun"]
    assert first.done() is None
    second = launch("--set", f"steps={reached + 2}", attempt=2)
    assert second.wait() == 0, second.log()
    assert f"resumed=step-{reached:08d}" in second.log()
    assert sorted(second.losses()) == list(range(1, reached + 3))


def test_sigterm_before_the_first_step_ends_without_a_checkpoint(launch: Launch) -> None:
    trainer = launch(fresh=True)
    trainer.until(lambda: trainer.progress()["phase"] == "loading")
    trainer.process.terminate()
    assert trainer.wait() == 143
    assert not list(trainer.output.glob("checkpoints/step-*"))


def test_a_broken_latest_checkpoint_costs_one_step_back(launch: Launch) -> None:
    first = launch("--set", "steps=4", "--set", "checkpoint.every_steps=2")
    assert first.wait() == 0
    (first.output / "checkpoints" / "step-00000004" / "masters.safetensors").write_bytes(b"torn")
    second = launch("--set", "steps=6", "--set", "checkpoint.every_steps=2", attempt=2)
    assert second.wait() == 0, second.log()
    assert "skipped=step-00000004 reason=masters.safetensors differs" in second.log()
    assert "resumed=step-00000002" in second.log()


def test_a_later_attempt_fences_the_earlier_one(launch: Launch) -> None:
    first = launch("--set", "steps=4000")
    first.until(lambda: first.step() >= 1)
    second = launch("--set", "steps=5", attempt=2)
    assert second.wait() == 0, second.log()
    assert first.wait() == 77, first.log()
    again = launch(attempt=1)
    assert again.wait() == 77
    assert "attempt 2 owns it" in again.log()


def test_a_checkpoint_of_another_shape_is_a_configuration_error(launch: Launch) -> None:
    assert launch("--set", "steps=2").wait() == 0
    second = launch("--set", "steps=3", "--set", "draft.mlp=64", attempt=2)
    assert second.wait() == 64
    assert "draft.mlp=64" in second.log() and "trained with 128" in second.log()
