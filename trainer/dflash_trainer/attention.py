"""Who sees whom in drafter training: one predicate, dense through SDPA or sparse through flex_attention.

Shape legend: b rows, N anchors a row, B block size, T = N*B queries, S context, S+T keys, h heads, d head dim.

    blk = qi // B, off = qi % B, a = anchor[b, blk]
    CTX   = kj < S and kj < a and keep[b, blk] and doc[b, kj] == doc[b, a]  [and kj >= a + off - (w-1)]
    NOISE = kj >= S and (kj - S) // B == blk                               [and kj - S <= qi if causal]
    allow = CTX or NOISE

Padding anchors (keep False) keep their own NOISE square: a query that sees nothing is NaN in a softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class BlockShape:
    """What decides the mask beyond the batch: fixed for a run, written to the export's config.

    window: sliding-window width w in positions, 0 for full attention.
    """

    block: int
    causal: bool = False
    window: int = 0


def predicate(anchor_bN: Tensor, keep_bN: Tensor, doc_bS: Tensor, shape: BlockShape) -> Predicate:
    """`allow(b, h, qi, kj)` on index tensors of any broadcastable shapes."""
    context = doc_bS.shape[1]
    block = shape.block

    def allow(b: Tensor, h: Tensor, qi: Tensor, kj: Tensor) -> Tensor:
        blk = qi // block
        a = anchor_bN[b, blk]
        s = torch.clamp(kj, max=context - 1)  # kj may exceed S: doc must not be read there
        seen = (kj < context) & (s < a) & keep_bN[b, blk] & (doc_bS[b, s] == doc_bS[b, a])
        own = (kj >= context) & ((kj - context) // block == blk)
        if shape.window:
            seen = seen & (s >= a + qi % block - (shape.window - 1))
        if shape.causal:
            own = own & (kj - context <= qi)
        return seen | own

    return allow


def dense_mask(anchor_bN: Tensor, keep_bN: Tensor, doc_bS: Tensor, shape: BlockShape) -> Tensor:
    """The predicate written out: bool [b, 1, T, S+T], True where the query sees the key."""
    rows, anchors = anchor_bN.shape
    queries = anchors * shape.block
    device = anchor_bN.device
    b = torch.arange(rows, device=device)[:, None, None]
    qi = torch.arange(queries, device=device)[None, :, None]
    kj = torch.arange(doc_bS.shape[1] + queries, device=device)[None, None, :]
    return predicate(anchor_bN, keep_bN, doc_bS, shape)(b, torch.zeros_like(b), qi, kj)[:, None]


def flex_mask(anchor_bN: Tensor, keep_bN: Tensor, doc_bS: Tensor, shape: BlockShape) -> object:
    """The predicate as flex_attention's BlockMask."""
    from torch.nn.attention.flex_attention import create_block_mask

    rows, anchors = anchor_bN.shape
    queries = anchors * shape.block
    allow = predicate(anchor_bN, keep_bN, doc_bS, shape)
    return create_block_mask(cast(Any, allow), rows, None, queries, doc_bS.shape[1] + queries, device=anchor_bN.device)


def attend(q_bhTd: Tensor, k_bhSd: Tensor, v_bhSd: Tensor, mask: object | None) -> Tensor:
    """Grouped-query attention at scale d**-0.5 under a dense mask, a BlockMask or none."""
    if mask is None or isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(q_bhTd, k_bhSd, v_bhSd, attn_mask=mask, enable_gqa=True)
    from torch.nn.attention.flex_attention import flex_attention

    out = flex_attention(q_bhTd, k_bhSd, v_bhSd, block_mask=cast(Any, mask), enable_gqa=True)
    assert isinstance(out, Tensor)
    return out
