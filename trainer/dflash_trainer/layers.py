"""Pieces that target and drafter share: RMSNorm, rotary positions, the gated MLP.

Shape legend: b rows, L positions, h heads, d head dim, H hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NORM_EPS = 1e-6
ROPE_THETA = 10_000.0


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension, computed in float32 (bf16 loses the mean)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        size = self.weight.shape[0]
        return F.rms_norm(x.float(), (size,), self.weight.float(), NORM_EPS).to(x.dtype)


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x)), without biases."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


Rotary = tuple[Tensor, Tensor]


def rotary(positions_bL: Tensor, head_dim: int, dtype: torch.dtype) -> Rotary:
    """cos and sin tables [b, 1, L, d] for absolute positions (angles in float32)."""
    half = torch.arange(0, head_dim, 2, device=positions_bL.device, dtype=torch.float32)
    frequency = ROPE_THETA ** (-half / head_dim)
    angle = positions_bL[:, None, :, None].float() * frequency
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x_bhLd: Tensor, tables: Rotary) -> Tensor:
    """Apply rotary positions, halves convention (as Hugging Face's Qwen3 does)."""
    cos, sin = tables
    first, second = x_bhLd.chunk(2, dim=-1)
    return x_bhLd * cos + torch.cat((-second, first), dim=-1) * sin


def split_heads(x_bLD: Tensor, heads: int) -> Tensor:
    """[b, L, h*d] -> [b, L, h, d]; norm per head comes before the transpose."""
    return x_bLD.view(*x_bLD.shape[:-1], heads, -1)


def init_weights(module: nn.Module, seed: int, scale: float = 1.0) -> None:
    """Normal weights of std scale/sqrt(fan in), norms at one; from a generator of its own.

    The process-wide generator is shared by threads and rewound by compiles.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if parameter.dim() == 1:
            nn.init.ones_(parameter)
        else:
            std = scale if name.startswith("embed") else scale * parameter.shape[-1] ** -0.5
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
