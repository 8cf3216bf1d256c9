"""The drafter against its formulas, written again from the specification: one query, one key at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dflash_trainer.config import Config
from dflash_trainer.drafter import Drafter

Weights = dict[str, Tensor]


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.pow(2).mean() + 1e-6).sqrt() * weight


def rope(x: Tensor, position: int) -> Tensor:
    half = len(x) // 2
    out = x.clone()
    for i in range(half):
        angle = position * 10_000.0 ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def layer(w: Weights, x: list[Tensor], ctx: list[Tensor], anchor: int, heads: int, kv_heads: int) -> list[Tensor]:
    """One draft layer over a block at `anchor` that sees the whole of `ctx` and itself."""
    block = [norm(row, w["input_layernorm.weight"]) for row in x]
    places = [*range(len(ctx)), *range(anchor, anchor + len(block))]
    out = []
    for slot, row in enumerate(block):
        mixed = []
        for head in range(heads):
            size = len(w["self_attn.q_norm.weight"])
            part, kv = slice(head * size, (head + 1) * size), head // (heads // kv_heads)
            shared = slice(kv * size, (kv + 1) * size)
            query = rope(norm((w["self_attn.q_proj.weight"] @ row)[part], w["self_attn.q_norm.weight"]), anchor + slot)
            scores, values = [], []
            for source, place in zip([*ctx, *block], places, strict=True):
                key = norm((w["self_attn.k_proj.weight"] @ source)[shared], w["self_attn.k_norm.weight"])
                scores.append(query @ rope(key, place) / math.sqrt(size))
                values.append((w["self_attn.v_proj.weight"] @ source)[shared])
            share = torch.stack(scores).softmax(0)
            mixed.append(share @ torch.stack(values))
        y = x[slot] + w["self_attn.o_proj.weight"] @ torch.cat(mixed)
        z = norm(y, w["post_attention_layernorm.weight"])
        gate = w["mlp.gate_proj.weight"] @ z
        out.append(y + w["mlp.down_proj.weight"] @ (gate * gate.sigmoid() * (w["mlp.up_proj.weight"] @ z)))
    return out


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_the_forward_is_the_formula_of_the_paper(config: Config, kv_heads: int) -> None:
    generator = torch.Generator().manual_seed(5)
    drafter = Drafter(replace(config.draft, kv_heads=kv_heads), config.target.hidden, 2)
    for parameter in drafter.parameters():  # norms away from one, or they could be swapped unseen
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    taps = torch.randn(1, 6, 32, generator=generator)
    block = torch.randn(1, 4, 16, generator=generator)
    with torch.no_grad():
        got = drafter(taps, torch.arange(6)[None], block, torch.arange(6, 10)[None], None)[0]
    w = {name: p.detach() for name, p in drafter.named_parameters()}
    ctx = [norm(w["fc.weight"] @ row, w["hidden_norm.weight"]) for row in taps[0]]
    x = list(block[0])
    for number in range(2):
        inner = {name.partition(f"layers.{number}.")[2]: p for name, p in w.items() if f"layers.{number}." in name}
        x = layer(inner, x, ctx, 6, config.draft.heads, kv_heads)
    want = torch.stack([norm(row, w["norm.weight"]) for row in x])
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)
