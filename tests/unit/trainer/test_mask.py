from __future__ import annotations

import itertools

import pytest
import torch

from dflash_trainer.attention import BlockShape, attend, dense_mask, flex_mask

ANCHOR = torch.tensor([[3, 5, 9, 0], [2, 7, 8, 11]])
KEEP = torch.tensor([[True, True, True, False], [True, True, True, True]])
DOC = torch.tensor([[0] * 6 + [1] * 6, [0] * 4 + [1] * 4 + [2] * 4])
SHAPES = [BlockShape(4), BlockShape(4, causal=True), BlockShape(4, window=3), BlockShape(2, causal=True, window=5)]


def brute_force(shape: BlockShape) -> torch.Tensor:
    """The specification in loops, one query and one key at a time."""
    rows, anchors = ANCHOR.shape
    context, queries = DOC.shape[1], anchors * shape.block
    allow = torch.zeros(rows, 1, queries, context + queries, dtype=torch.bool)
    for b, qi, kj in itertools.product(range(rows), range(queries), range(context + queries)):
        block, slot = divmod(qi, shape.block)
        a = int(ANCHOR[b, block])
        if kj < context:
            seen = kj < a and bool(KEEP[b, block]) and bool(DOC[b, kj] == DOC[b, a])
            if shape.window and kj < a + slot - (shape.window - 1):
                seen = False
        else:
            seen = (kj - context) // shape.block == block
            if shape.causal and kj - context > qi:
                seen = False
        allow[b, 0, qi, kj] = seen
    return allow


@pytest.mark.parametrize("shape", SHAPES)
def test_the_predicate_is_the_specification_written_in_loops(shape: BlockShape) -> None:
    assert torch.equal(dense_mask(ANCHOR, KEEP, DOC, shape), brute_force(shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_no_query_sees_nothing_not_even_in_a_padding_block(shape: BlockShape) -> None:
    assert bool(dense_mask(ANCHOR, KEEP, DOC, shape).any(-1).all())


@pytest.mark.parametrize("shape", SHAPES)
def test_flex_attention_and_the_dense_mask_give_the_same_output(shape: BlockShape) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = ANCHOR.shape[1] * shape.block
    q = torch.randn(2, 4, queries, 16, generator=generator)
    k, v = torch.randn(2, 2, 2, DOC.shape[1] + queries, 16, generator=generator)
    dense = attend(q, k, v, dense_mask(ANCHOR, KEEP, DOC, shape))
    sparse = attend(q, k, v, flex_mask(ANCHOR, KEEP, DOC, shape))
    torch.testing.assert_close(sparse, dense, atol=2e-6, rtol=1e-5)
