from __future__ import annotations

import itertools
import math

import pytest
import torch

from dflash_trainer import optimise
from dflash_trainer.config import Config, OptimConfig
from dflash_trainer.drafter import Drafter
from dflash_trainer.drafting import MicroGrads


def sums_of(drafter: Drafter, seed: int, denominator: float = 2.0) -> MicroGrads:
    generator = torch.Generator().manual_seed(seed)
    grads = [torch.randn(p.shape, generator=generator) for p in drafter.parameters()]
    return MicroGrads(grads, 3.0 + seed, denominator, torch.tensor([1, 0]), torch.tensor([2, 2]), 10)


def drafter_of(config: Config) -> Drafter:
    return Drafter(config.draft, config.target.hidden, 2)


def test_the_order_of_arrival_changes_no_bit(config: Config) -> None:
    drafter = drafter_of(config)
    results = []
    for order in itertools.permutations(range(4)):
        total = optimise.StepSums(torch.device("cpu"))
        early: dict[int, MicroGrads] = {}
        for number in order:
            early[number] = sums_of(drafter, number)
            total.add(early)
        assert total.next_micro == 4 and not early
        assert total.grads is not None
        results.append((total.loss, [grad.clone() for grad in total.grads]))
    for loss, grads in results[1:]:
        assert loss == results[0][0]
        assert all(torch.equal(a, b) for a, b in zip(grads, results[0][1], strict=True))


def test_a_micro_batch_with_few_labels_weighs_little(config: Config) -> None:
    """One denominator for the whole step, not a mean of means."""
    drafter = drafter_of(config)
    total = optimise.StepSums(torch.device("cpu"))
    total.add({0: sums_of(drafter, 0, denominator=9.0), 1: sums_of(drafter, 1, denominator=1.0)})
    assert total.loss == pytest.approx((3.0 + 4.0) / 10.0)


def test_a_non_finite_gradient_is_named_and_changes_nothing(config: Config) -> None:
    drafter = drafter_of(config)
    before = [p.detach().clone() for p in drafter.parameters()]
    optimizer = optimise.make_optimizer(drafter, config.optim)
    total = optimise.StepSums(torch.device("cpu"))
    bad = sums_of(drafter, 0)
    names = [name for name, _ in drafter.named_parameters()]
    bad.grads[names.index("norm.weight")][3] = math.inf
    total.add({0: bad})
    _, name = optimise.apply(drafter, optimizer, total, config.optim, 1e-3)
    assert name == "norm.weight"
    assert all(torch.equal(a, b) for a, b in zip(drafter.parameters(), before, strict=True))


def test_a_step_without_any_label_is_no_step_and_no_loss(config: Config) -> None:
    drafter = drafter_of(config)
    before = [p.detach().clone() for p in drafter.parameters()]
    total = optimise.StepSums(torch.device("cpu"))
    total.add({0: sums_of(drafter, 0, denominator=0.0)})
    assert math.isnan(total.loss)
    optimizer = optimise.make_optimizer(drafter, config.optim)
    assert optimise.apply(drafter, optimizer, total, config.optim, 1e-3) == (0.0, None)
    assert all(torch.equal(a, b) for a, b in zip(drafter.parameters(), before, strict=True))


def test_the_gradient_is_clipped_by_its_global_norm(config: Config) -> None:
    drafter = drafter_of(config)
    optimizer = torch.optim.SGD(drafter.parameters(), lr=1.0)
    before = [p.detach().clone() for p in drafter.parameters()]
    total = optimise.StepSums(torch.device("cpu"))
    total.add({0: sums_of(drafter, 0)})
    norm, _ = optimise.apply(drafter, optimizer, total, config.optim, 1.0)
    moved = math.sqrt(
        sum(float((a.detach() - b).square().sum()) for a, b in zip(drafter.parameters(), before, strict=True))
    )
    assert norm > config.optim.clip
    assert moved == pytest.approx(config.optim.clip, rel=1e-3)


def test_the_learning_rate_warms_up_and_falls_to_its_floor() -> None:
    config = OptimConfig(lr=1.0, warmup_steps=10, min_lr_frac=0.1)
    rates = [optimise.learning_rate(config, step, 100) for step in range(1, 101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)
