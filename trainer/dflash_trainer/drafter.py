"""The DFlash drafter: fused target features, key/value injection, a block of mask slots.

Shape legend: b rows, S context positions, T block tokens, K tapped layers, H hidden, h heads, d head dim.

    ctx = RMSNorm(fc(concat_l h_l))                                   [b, S, H], once for all layers
    q   = qnorm(Wq LN(x));  k = knorm([Wk ctx ; Wk LN(x)]);  v = [Wv ctx ; Wv LN(x)]
    RoPE on q by block positions, on k by (context, block) positions; bidirectional inside the block

Context features never pass through Q, O or the MLP. Parameter names are the published checkpoint's.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from dflash_trainer.attention import BlockShape, attend
from dflash_trainer.config import DraftConfig
from dflash_trainer.layers import GatedMLP, RMSNorm, Rotary, init_weights, rotary, rotate, split_heads

KeyValue = tuple[Tensor, Tensor]


class DraftAttention(nn.Module):
    def __init__(self, config: DraftConfig, hidden: int) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.q_proj = nn.Linear(hidden, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, config.kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, hidden, bias=False)
        self.q_norm = RMSNorm(config.head_dim)
        self.k_norm = RMSNorm(config.head_dim)

    def key_value(self, x_bLH: Tensor, tables: Rotary) -> KeyValue:
        """Keys and values [b, h, L, d] of context features or of block tokens: the same weights."""
        key = self.k_norm(split_heads(self.k_proj(x_bLH), self.kv_heads)).transpose(1, 2)
        value = split_heads(self.v_proj(x_bLH), self.kv_heads).transpose(1, 2)
        return rotate(key, tables), value

    def forward(self, x_bTH: Tensor, context: KeyValue, tables: Rotary, mask: object | None) -> Tensor:
        query = rotate(self.q_norm(split_heads(self.q_proj(x_bTH), self.heads)).transpose(1, 2), tables)
        key, value = self.key_value(x_bTH, tables)
        key = torch.cat((context[0], key), dim=2)
        value = torch.cat((context[1], value), dim=2)
        out: Tensor = self.o_proj(attend(query, key, value, mask).transpose(1, 2).flatten(2))
        return out


class DraftLayer(nn.Module):
    def __init__(self, config: DraftConfig, hidden: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(hidden)
        self.self_attn = DraftAttention(config, hidden)
        self.post_attention_layernorm = RMSNorm(hidden)
        self.mlp = GatedMLP(hidden, config.mlp)

    def forward(self, x_bTH: Tensor, context: KeyValue, tables: Rotary, mask: object | None) -> Tensor:
        x = x_bTH + self.self_attn(self.input_layernorm(x_bTH), context, tables, mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Drafter(nn.Module):
    """The trained part only: embedding and head stay the target's and are handed in."""

    def __init__(self, config: DraftConfig, hidden: int, tap_count: int) -> None:
        super().__init__()
        self.config = config
        self.shape = BlockShape(config.block, config.causal, config.window)
        self.fc = nn.Linear(tap_count * hidden, hidden, bias=False)
        self.hidden_norm = RMSNorm(hidden)
        self.layers = nn.ModuleList(DraftLayer(config, hidden) for _ in range(config.layers))
        self.norm = RMSNorm(hidden)
        init_weights(self, config.seed)

    def fuse(self, taps_bSKH: Tensor) -> Tensor:
        """[b, S, K*H] -> ctx [b, S, H]."""
        ctx: Tensor = self.hidden_norm(self.fc(taps_bSKH))
        return ctx

    def context_key_values(self, ctx_bSH: Tensor, positions_bS: Tensor) -> list[KeyValue]:
        """Each layer's keys and values of the context; when serving, written once a position."""
        tables = rotary(positions_bS, self.config.head_dim, ctx_bSH.dtype)
        return [cast(DraftLayer, layer).self_attn.key_value(ctx_bSH, tables) for layer in self.layers]

    def body(self, x_bTH: Tensor, positions_bT: Tensor, contexts: list[KeyValue], mask: object | None) -> Tensor:
        """The draft layers and the final norm over block tokens [b, T, H]."""
        tables = rotary(positions_bT, self.config.head_dim, x_bTH.dtype)
        x = x_bTH
        for layer, context in zip(self.layers, contexts, strict=True):
            x = layer(x, context, tables, mask)
        out: Tensor = self.norm(x)
        return out

    def forward(
        self,
        taps_bSKH: Tensor,
        positions_bS: Tensor,
        block_bTH: Tensor,
        block_positions_bT: Tensor,
        mask: object | None,
    ) -> Tensor:
        """Hidden states [b, T, H] of the block slots; slot k of an anchor a predicts token a+k."""
        contexts = self.context_key_values(self.fuse(taps_bSKH), positions_bS)
        return self.body(block_bTH, block_positions_bT, contexts, mask)
