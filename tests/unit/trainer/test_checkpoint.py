from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dflash_trainer import checkpoint, export, optimise, owner
from dflash_trainer.attempt import Attempt
from dflash_trainer.config import Config
from dflash_trainer.drafter import Drafter
from dflash_trainer.exits import FencedError


class Saver:
    """A drafter that takes steps and saves them."""

    def __init__(self, folder: Path, config: Config, number: int = 1) -> None:
        self.folder, self.config = folder, config
        self.attempt = Attempt("run-a", number, folder, folder)
        self.me = owner.claim(folder, self.attempt)
        self.drafter = Drafter(config.draft, config.target.hidden, 2)
        self.optimizer = optimise.make_optimizer(self.drafter, config.optim)

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = sum((p.square() * 3).sum() for p in self.drafter.parameters())
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        self.optimizer.step()

    def save(self, step: int, run: str = "run-a") -> Path:
        state: checkpoint.State = {"step": step, "run": run}
        return checkpoint.save(
            self.folder, step, self.drafter, self.optimizer, state, config=self.config, taps=(0, 1), me=self.me
        )


def loaded(folder: Path) -> checkpoint.Loaded:
    found = checkpoint.newest_whole(folder)
    assert found is not None
    return found


def test_what_was_saved_goes_on_bit_for_bit(tmp_path: Path, config: Config) -> None:
    one = Saver(tmp_path, config)
    one.step()
    one.save(1)
    other = Saver(tmp_path, config, number=2)
    checkpoint.restore(loaded(tmp_path), other.drafter, other.optimizer)
    for saver in (one, other):
        saver.step()
    for a, b in zip(one.drafter.parameters(), other.drafter.parameters(), strict=True):
        assert torch.equal(a, b)
    assert (tmp_path / "latest").read_text() == "step-00000001\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "COMPLETE").unlink(),
        lambda path: (path / "COMPLETE").write_text("{"),
        lambda path: (path / "masters.safetensors").write_bytes(b"torn"),
        lambda path: (path / "draft" / "config.json").unlink(),
    ],
)
def test_a_broken_checkpoint_is_stepped_over_and_kept(tmp_path: Path, config: Config, damage: object) -> None:
    saver = Saver(tmp_path, config)
    for step in (1, 2, 3):
        saver.step()
        saver.save(step)
    assert callable(damage)
    damage(tmp_path / "step-00000003")
    assert loaded(tmp_path).state["step"] == 2
    saver.save(3)
    assert loaded(tmp_path).state["step"] == 3
    assert (tmp_path / "broken-step-00000003.1").is_dir()


def test_a_torn_write_is_no_checkpoint(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = Saver(tmp_path, config)
    saver.save(1)

    def power_cut(*_: object) -> None:
        raise KeyboardInterrupt

    for place in ("write_text", "sync_folder"):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, place, power_cut)
            with pytest.raises(KeyboardInterrupt):
                saver.save(2)
        assert loaded(tmp_path).state["step"] == 1
    saver.save(2)
    assert loaded(tmp_path).state["step"] == 2


def test_pruning_keeps_the_last_two_whole_ones_and_what_others_wrote(tmp_path: Path, config: Config) -> None:
    saver = Saver(tmp_path, config)
    saver.save(1, run="run-b")
    for step in (2, 3, 4, 5):
        saver.save(step)
    (tmp_path / "step-00000005" / "COMPLETE").unlink()
    checkpoint.prune(tmp_path, 1, lambda state: state["run"] == "run-a")
    left = sorted(path.name for path in tmp_path.glob("step-*"))
    assert left == ["step-00000001", "step-00000003", "step-00000004", "step-00000005"]


def test_nothing_is_written_under_a_later_attempts_nose(tmp_path: Path, config: Config) -> None:
    early = Saver(tmp_path, config)
    early.save(1)
    Saver(tmp_path, config, number=2)
    with pytest.raises(FencedError, match="run-a:2"):
        early.save(2)
    assert (tmp_path / "latest").read_text() == "step-00000001\n"
    with pytest.raises(FencedError, match="attempt 2 owns it"):
        Saver(tmp_path, config, number=1)


def test_a_living_process_of_another_run_keeps_its_folder(tmp_path: Path, config: Config) -> None:
    Saver(tmp_path, config)
    with pytest.raises(FencedError, match="lives"):
        owner.claim(tmp_path, Attempt("run-b", 7, tmp_path, tmp_path))
    record = json.loads((tmp_path / "OWNER.json").read_text())
    (tmp_path / "OWNER.json").write_text(json.dumps({**record, "start": record["start"] - 1}))
    assert owner.claim(tmp_path, Attempt("run-b", 7, tmp_path, tmp_path)).run == "run-b"


def test_the_export_has_the_published_names_in_bf16_and_reads_back(tmp_path: Path, config: Config) -> None:
    from safetensors.torch import load_file

    drafter = Drafter(config.draft, config.target.hidden, 2)
    export.write(tmp_path, drafter, config, (0, 1))
    tensors = load_file(tmp_path / "model.safetensors")
    assert set(tensors) == export.tensor_names(2)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    read = export.read(tmp_path, config, (0, 1))
    for (name, ours), (_, theirs) in zip(drafter.named_parameters(), read.named_parameters(), strict=True):
        assert torch.equal(ours.bfloat16().float(), theirs), name
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["block_size"] == written["dflash_config"]["block_size"] == 4
    assert written["dflash_config"]["target_layer_ids"] == [0, 1]  # 0-based outputs: readers add their own 1
    assert written["num_target_layers"] == 3


def test_an_export_of_another_depth_is_refused(tmp_path: Path, config: Config) -> None:
    from dataclasses import replace

    export.write(tmp_path, Drafter(config.draft, config.target.hidden, 2), config, (0, 1))
    deeper = replace(config, draft=replace(config.draft, layers=3))
    with pytest.raises(ValueError, match="key set"):
        export.read(tmp_path, deeper, (0, 1))
