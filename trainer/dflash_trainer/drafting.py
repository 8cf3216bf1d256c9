"""Forward and backward of one micro-batch: the numerator's gradient and the denominator, apart.

Shape legend: b rows, S context, T block tokens, N anchors, B block, K taps, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dflash_trainer.attention import dense_mask, flex_mask
from dflash_trainer.batch import Micro
from dflash_trainer.config import LossConfig
from dflash_trainer.drafter import Drafter
from dflash_trainer.loss import slot_weights, weighted_ce

Forward = Callable[[Tensor, Tensor, Tensor, Tensor, object], Tensor]


@dataclass(frozen=True, slots=True)
class MicroGrads:
    """Sums over one micro-batch.

    grads: float32, one a parameter, of the *numerator*; numerator, denominator: of the loss;
    hits, counts: [B-1] right and valid predictions of each slot; tokens: context tokens seen.
    """

    grads: list[Tensor]
    numerator: float
    denominator: float
    hits: Tensor
    counts: Tensor
    tokens: int


def forward_loss(
    drafter: Drafter,
    micro: Micro,
    taps_bSKH: Tensor,
    embedding_VH: Tensor,
    head_VH: Tensor,
    loss: LossConfig,
    *,
    flex: bool = False,
    forward: Forward | None = None,
) -> tuple[Tensor, float, Tensor]:
    """Numerator (differentiable), denominator, hits bool [b, N, B-1]."""
    make_mask = flex_mask if flex else dense_mask
    mask = make_mask(micro.anchor, micro.keep, micro.doc, drafter.shape)
    block_bTH = F.embedding(micro.block_tokens, embedding_VH)
    run = drafter if forward is None else forward  # a compiled module has no truth value
    hidden = run(taps_bSKH, micro.positions, block_bTH, micro.block_positions, mask)
    rows, anchors, drafts = micro.labels.shape
    hidden = hidden.view(rows, anchors, drafts + 1, -1)[:, :, 1:]  # slot 0 is given, not predicted
    weights = slot_weights(drafts + 1, loss.gamma).to(hidden.device) * micro.valid
    numerator, hits = weighted_ce(
        hidden.reshape(-1, hidden.shape[-1]),
        head_VH,
        micro.labels.flatten(),
        weights.flatten(),
        chunk=loss.chunk_rows,
    )
    return numerator, float(weights.double().sum()), hits.view_as(micro.valid)


def gradients(
    drafter: Drafter,
    micro: Micro,
    taps_bSKH: Tensor,
    embedding_VH: Tensor,
    head_VH: Tensor,
    loss: LossConfig,
    *,
    flex: bool = False,
    forward: Forward | None = None,
) -> MicroGrads:
    """One forward and backward; the drafter's parameters keep no gradient."""
    numerator, denominator, hits = forward_loss(
        drafter, micro, taps_bSKH, embedding_VH, head_VH, loss, flex=flex, forward=forward
    )
    grads = torch.autograd.grad(numerator, list(drafter.parameters()))
    valid = micro.valid
    return MicroGrads(
        grads=[grad.float() for grad in grads],
        numerator=float(numerator.detach()),
        denominator=denominator,
        hits=(hits & valid).sum((0, 1)).cpu(),
        counts=valid.sum((0, 1)).cpu(),
        tokens=micro.tokens.numel(),
    )
