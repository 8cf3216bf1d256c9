from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dflash_trainer.config import Config, DataConfig, DraftConfig, OptimConfig, TargetConfig

torch.set_num_threads(1)  # two OpenMP threads on a busy machine make small matrices a hundred times slower


@pytest.fixture
def config() -> Config:
    """A target of three layers and a drafter of two, small enough to run in milliseconds."""
    return replace(
        Config(),
        steps=6,
        target=TargetConfig(layers=3, hidden=16, heads=2, mlp=24, steps=2, batch=2, window=16),
        data=DataConfig(rows=12, prompt_tokens=8, response_tokens=16),
        draft=DraftConfig(layers=2, heads=2, kv_heads=1, head_dim=8, mlp=24, taps=(0, 1), block=4, anchors=4),
        optim=OptimConfig(batch_rows=4, micro_rows=2, warmup_steps=2),
    )
