from __future__ import annotations

import pytest
import torch

from dflash_trainer.config_load import load
from dflash_trainer.devices import resolve
from dflash_trainer.exits import ConfigError


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_two_drafters_and_a_target_share_the_cpu() -> None:
    layout = resolve(load(None))
    assert (layout.targets, layout.drafters) == (("cpu",), ("cpu", "cpu"))
    assert (layout.dtype, layout.flex, layout.compiled) == (torch.float32, False, False)


@pytest.mark.usefixtures("gpus")
def test_on_eight_gpus_one_has_the_target_and_seven_a_drafter() -> None:
    layout = resolve(load(None))
    assert layout.targets == ("cuda:0",)
    assert layout.drafters == tuple(f"cuda:{i}" for i in range(1, 8))
    assert (layout.dtype, layout.flex, layout.compiled) == (torch.bfloat16, True, True)


@pytest.mark.usefixtures("gpus")
def test_every_micro_batch_has_a_drafter_and_every_drafter_a_micro_batch() -> None:
    layout = resolve(load(None))
    assert {layout.drafter_of(micro) for micro in range(layout.micros)} == set(range(7))


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('layout.devices=["cuda:0"]', "cuda:0 is not visible here"),
        ('layout.devices=["gpu"]', "'gpu' is no device"),
        ("layout.drafter_workers=99", "99 workers share 8 micro-batches"),
        ("layout.attention=flex", "no backward on the CPU"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(load(None, [setting]))
