"""The small real target: a Qwen3-shaped causal transformer over bytes.

Shape legend: b rows, L new positions, C cached positions, H hidden, V vocabulary, K tapped layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dflash_trainer.config import TargetConfig
from dflash_trainer.layers import GatedMLP, RMSNorm, Rotary, init_weights, rotary, rotate, split_heads

VOCAB = 264  # 256 bytes, then special ids; a multiple of 8
MASK_ID = 260


class KeyValueCache:
    """Keys and values of every layer up to a capacity; `length` positions are valid."""

    def __init__(self, model: Target, rows: int, capacity: int) -> None:
        shape = (rows, model.config.heads, capacity, model.head_dim)
        weight = model.embed_tokens.weight
        self.keys = [torch.zeros(shape, dtype=weight.dtype, device=weight.device) for _ in model.layers]
        self.values = [torch.zeros_like(key) for key in self.keys]
        self.length = 0

    def crop(self, length: int) -> None:
        """Forget the positions from `length` on: what verification did not accept."""
        assert length <= self.length
        self.length = length

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write behind the valid positions; `length` moves once for all layers, by the caller."""
        end = self.length + key.shape[2]
        assert end <= self.keys[layer].shape[2], "cache capacity exceeded"
        self.keys[layer][:, :, self.length : end] = key
        self.values[layer][:, :, self.length : end] = value
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]


class TargetLayer(nn.Module):
    def __init__(self, config: TargetConfig, index: int) -> None:
        super().__init__()
        size, self.heads, self.index = config.hidden, config.heads, index
        self.input_layernorm = RMSNorm(size)
        self.q_proj = nn.Linear(size, size, bias=False)
        self.k_proj = nn.Linear(size, size, bias=False)
        self.v_proj = nn.Linear(size, size, bias=False)
        self.o_proj = nn.Linear(size, size, bias=False)
        self.q_norm = RMSNorm(size // config.heads)
        self.k_norm = RMSNorm(size // config.heads)
        self.post_attention_layernorm = RMSNorm(size)
        self.mlp = GatedMLP(size, config.mlp)

    def forward(self, x: Tensor, tables: Rotary, mask: Tensor | None, cache: KeyValueCache | None) -> Tensor:
        y = self.input_layernorm(x)
        query = rotate(self.q_norm(split_heads(self.q_proj(y), self.heads)).transpose(1, 2), tables)
        key = rotate(self.k_norm(split_heads(self.k_proj(y), self.heads)).transpose(1, 2), tables)
        value = split_heads(self.v_proj(y), self.heads).transpose(1, 2)
        if cache is not None:
            key, value = cache.append(self.index, key, value)
        causal = mask is None and query.shape[2] == key.shape[2]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        x = x + self.o_proj(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


@dataclass(frozen=True, slots=True)
class TargetOutput:
    """layers: outputs [b, L, H] of the layers that ran; logits [b, L, V], None when stopped early."""

    layers: list[Tensor]
    logits: Tensor | None


class Target(nn.Module):
    """Embedding, decoder layers, final norm, untied head."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        self.head_dim = config.hidden // config.heads
        self.embed_tokens = nn.Embedding(VOCAB, config.hidden)
        self.layers = nn.ModuleList(TargetLayer(config, index) for index in range(config.layers))
        self.norm = RMSNorm(config.hidden)
        self.lm_head = nn.Linear(config.hidden, VOCAB, bias=False)
        init_weights(self, config.seed)

    def forward(
        self,
        tokens_bL: Tensor,
        *,
        positions_bL: Tensor | None = None,
        doc_bL: Tensor | None = None,
        cache: KeyValueCache | None = None,
        stop_after: int | None = None,
    ) -> TargetOutput:
        """Run the layers; with `stop_after` end behind that layer, without norm and head.

        Args:
            positions_bL: inside the document; default continues from the cache.
            doc_bL: document number of each position; attention stays inside a document.
        """
        start = 0 if cache is None else cache.length
        rows, new = tokens_bL.shape
        if positions_bL is None:
            positions_bL = torch.arange(start, start + new, device=tokens_bL.device).expand(rows, new)
        x: Tensor = self.embed_tokens(tokens_bL)
        tables = rotary(positions_bL, self.head_dim, x.dtype)
        mask = _mask(start, new, doc_bL, x.device)
        outputs = []
        for layer in self.layers:
            x = layer(x, tables, mask, cache)
            outputs.append(x)
            if stop_after is not None and len(outputs) > stop_after:
                return TargetOutput(outputs, None)
        if cache is not None:
            cache.length += new
        return TargetOutput(outputs, self.lm_head(self.norm(x)))


def _mask(start: int, new: int, doc_bL: Tensor | None, device: torch.device) -> Tensor | None:
    """None where plain causal (or one query against everything) says the same."""
    if doc_bL is None and (start == 0 or new == 1):
        return None
    query = torch.arange(start, start + new, device=device)[:, None]
    causal = torch.arange(start + new, device=device)[None, :] <= query
    if doc_bL is None:
        return causal
    same = doc_bL[:, :, None] == doc_bL[:, None, :]
    return (same & causal)[:, None]


def parameter_count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def generate(model: Target, prompts_bP: Tensor, count: int) -> Tensor:
    """Greedy continuation with a key-value cache: [b, P] -> [b, count]."""
    rows, length = prompts_bP.shape
    cache = KeyValueCache(model, rows, length + count)
    feed, out = prompts_bP, []
    for _ in range(count):
        logits = cast(Tensor, model(feed, cache=cache).logits)
        feed = logits[:, -1].argmax(-1, keepdim=True)
        out.append(feed)
    return torch.cat(out, dim=1)


def frozen(model: Target) -> Target:
    """No gradients, evaluation mode: the drafter learns from the target, never the other way."""
    return model.eval().requires_grad_(False)


def default_taps(layer_count: int, tap_count: int) -> tuple[int, ...]:
    """Evenly from layer 1 to layer L-3: id_i = round(1 + i*(L-4)/(n-1)); one tap is the middle layer.

    Source: the released z-lab drafters (Qwen3-8B, L=36, five taps: 1, 9, 17, 25, 33).
    """
    if tap_count == 1:
        return (layer_count // 2,)
    return tuple(round(1 + i * (layer_count - 4) / (tap_count - 1)) for i in range(tap_count))


def concat_taps(outputs: Sequence[Tensor], taps: Sequence[int]) -> Tensor:
    """[b, L, K*H] from the outputs of the tapped layers."""
    return torch.cat([outputs[tap] for tap in taps], dim=-1)
