"""Weighted cross-entropy through the target's frozen head, in chunks.

    L = sum_{n,k} w_k m_{n,k} CE(z_{n,k}, y_{a_n+k}) / sum_{n,k} w_k m_{n,k},   w_0 = 0,  w_k = exp(-(k-1)/gamma)

Numerator and denominator are returned apart: the denominator is summed over all workers and micro-batches
of a step, or rows with short responses would weigh too much.

Shape legend: R label rows, H hidden, V vocabulary, N anchors, B block.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


def slot_weights(block: int, gamma: float) -> Tensor:
    """w_1..w_{B-1}, float32 [B-1]. Gamma 7 for B=16, 5 for B=10, 4 for B=8 in the DFlash paper."""
    return torch.exp(-torch.arange(block - 1, dtype=torch.float32) / gamma)


class _FrozenHeadLoss(torch.autograd.Function):
    """sum_r w_r CE(head h_r, y_r). The gradient for h is made in forward: with a frozen head it needs only
    the softmax that is there anyway, so no logits are kept and none are computed twice."""

    @staticmethod
    def forward(
        ctx: Any, hidden_RH: Tensor, head_VH: Tensor, labels_R: Tensor, weights_R: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        grad = torch.empty_like(hidden_RH)
        total = torch.zeros((), dtype=torch.float32, device=hidden_RH.device)
        hit_R = torch.empty(labels_R.shape, dtype=torch.bool, device=hidden_RH.device)
        for start in range(0, hidden_RH.shape[0], chunk):
            rows = slice(start, start + chunk)
            logits = (hidden_RH[rows] @ head_VH.T).float()
            hit_R[rows] = logits.argmax(-1) == labels_R[rows]
            log_p = logits.log_softmax(-1)
            total = total - (log_p.gather(-1, labels_R[rows, None])[:, 0] * weights_R[rows]).sum()
            slope = log_p.exp()
            slope.scatter_add_(-1, labels_R[rows, None], -torch.ones_like(slope[:, :1]))
            grad[rows] = (slope * weights_R[rows, None]).to(head_VH.dtype) @ head_VH
        ctx.save_for_backward(grad)
        ctx.mark_non_differentiable(hit_R)
        return total, hit_R

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None, None, None]:
        (grad,) = ctx.saved_tensors
        return (grad * grads[0]).to(grad.dtype), None, None, None, None


def weighted_ce(
    hidden_RH: Tensor, head_VH: Tensor, labels_R: Tensor, weights_R: Tensor, *, chunk: int
) -> tuple[Tensor, Tensor]:
    """Numerator (float32 scalar, differentiable in hidden) and argmax hits (bool [R])."""
    applied = cast(Any, _FrozenHeadLoss).apply(hidden_RH, head_VH, labels_R, weights_R, chunk)
    return cast("tuple[Tensor, Tensor]", applied)
