"""One optimizer step from the micro-batches' sums: fixed order, one denominator, finite or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash_trainer.config import OptimConfig
from dflash_trainer.drafter import Drafter
from dflash_trainer.drafting import MicroGrads


@dataclass(slots=True)
class StepSums:
    """Running sums over a step's micro-batches, added in their order whatever order they arrive in.

    Float addition is not associative: a fixed order makes the result the same for any number of workers.
    """

    device: torch.device
    next_micro: int = 0
    grads: list[Tensor] | None = None
    numerator: float = 0.0
    denominator: float = 0.0
    tokens: int = 0
    hits: Tensor | None = None
    counts: Tensor | None = None

    def add(self, early: dict[int, MicroGrads]) -> None:
        """Take from `early` what is next in order."""
        while (sums := early.pop(self.next_micro, None)) is not None:
            if self.grads is None:
                self.grads = [grad.to(self.device, copy=True) for grad in sums.grads]
                self.hits, self.counts = sums.hits.clone(), sums.counts.clone()
            else:
                assert self.hits is not None and self.counts is not None
                torch._foreach_add_(self.grads, [grad.to(self.device) for grad in sums.grads])
                self.hits += sums.hits
                self.counts += sums.counts
            self.numerator += sums.numerator
            self.denominator += sums.denominator
            self.tokens += sums.tokens
            self.next_micro += 1

    @property
    def loss(self) -> float:
        """NaN without a single valid label: no loss is not a loss of zero."""
        return self.numerator / self.denominator if self.denominator else math.nan

    @property
    def accuracy(self) -> float:
        assert self.hits is not None and self.counts is not None
        return float(self.hits.sum() / self.counts.sum().clamp(min=1))


def make_optimizer(drafter: Drafter, config: OptimConfig) -> torch.optim.AdamW:
    """Fused AdamW: an eager foreach step fails while another thread compiles."""
    return torch.optim.AdamW(
        drafter.parameters(), lr=config.lr, weight_decay=config.weight_decay, betas=(0.9, 0.95), fused=True
    )


def learning_rate(config: OptimConfig, step: int, steps: int) -> float:
    """Linear warm-up, then cosine down to min_lr_frac; `step` counts from 1."""
    warm = min(1.0, step / max(1, config.warmup_steps))
    way = max(0.0, step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, way)))
    return config.lr * warm * (config.min_lr_frac + (1 - config.min_lr_frac) * cosine)


def non_finite(named: Iterable[tuple[str, Tensor]]) -> str | None:
    """The first tensor that holds a NaN or an infinity."""
    for name, tensor in named:
        if not bool(torch.isfinite(tensor).all()):
            return name
    return None


def apply(
    drafter: Drafter, optimizer: torch.optim.Optimizer, sums: StepSums, config: OptimConfig, lr: float
) -> tuple[float, str | None]:
    """Divide by the denominator, clip by the global norm, step.

    Returns:
        The gradient norm before clipping, and the name of a non-finite gradient: then nothing was changed.
    """
    assert sums.grads is not None
    if sums.denominator == 0:
        return 0.0, None  # no label in the whole step: nothing to learn, on no worker
    torch._foreach_div_(sums.grads, sums.denominator)
    norm = float(torch.linalg.vector_norm(torch.stack([g.norm() for g in sums.grads])))
    if not math.isfinite(norm):
        names = (name for name, _ in drafter.named_parameters())
        return norm, non_finite(zip(names, sums.grads, strict=True)) or "the global gradient norm"
    torch._foreach_mul_(sums.grads, min(1.0, config.clip / (norm + 1e-6)))
    for parameter, grad in zip(drafter.parameters(), sums.grads, strict=True):
        parameter.grad = grad
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, None
