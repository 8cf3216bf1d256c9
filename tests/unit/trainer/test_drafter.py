from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dflash_trainer.batch import Micro, build_micro
from dflash_trainer.config import Config
from dflash_trainer.drafter import Drafter
from dflash_trainer.drafting import forward_loss, gradients
from dflash_trainer.export import tensor_names
from dflash_trainer.features import LocalTarget
from dflash_trainer.speculate import ContextCache, draft
from dflash_trainer.target import Target, default_taps, frozen, parameter_count

ANCHOR = np.array([[9, 12, 17], [8, 15, 20]])
SEEN_MASKS = ("plain", "causal", "window")


def make(config: Config, kind: str = "plain") -> tuple[Target, LocalTarget, Drafter]:
    change = {"plain": {}, "causal": {"causal": True}, "window": {"window": 5}}[kind]
    target = frozen(Target(config.target))
    drafter = Drafter(replace(config.draft, **change), config.target.hidden, len(config.draft.taps))
    return target, LocalTarget(target, config.draft.taps), drafter


def batch(config: Config, tokens: np.ndarray, anchor: np.ndarray = ANCHOR, keep: np.ndarray | None = None) -> Micro:
    rows, length = tokens.shape
    positions = np.broadcast_to(np.arange(length), (rows, length))
    return build_micro(
        tokens,
        positions,
        np.zeros_like(positions),
        positions >= config.data.prompt_tokens,
        anchor,
        np.ones(anchor.shape, dtype=bool) if keep is None else keep,
        block=config.draft.block,
    )


def random_tokens(rows: int = 2, length: int = 24) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, length))


def hidden_of(drafter: Drafter, source: LocalTarget, micro: Micro, taps: torch.Tensor) -> torch.Tensor:
    from dflash_trainer.attention import dense_mask

    mask = dense_mask(micro.anchor, micro.keep, micro.doc, drafter.shape)
    block = torch.nn.functional.embedding(micro.block_tokens, source.embedding_VH)
    return drafter(taps, micro.positions, block, micro.block_positions, mask).detach()


@pytest.mark.parametrize("kind", SEEN_MASKS)
def test_features_at_and_behind_the_anchor_change_nothing(config: Config, kind: str) -> None:
    """Loss curves do not show a leak: a leaking mask trains just as nicely. Only this does."""
    _, source, drafter = make(config, kind)
    micro = batch(config, random_tokens())
    taps = source.taps(micro.tokens, micro.positions, micro.doc)
    before = hidden_of(drafter, source, micro, taps)
    for row, number in np.ndindex(ANCHOR.shape):
        anchor, block = int(ANCHOR[row, number]), slice(number * 4, number * 4 + 4)
        changed = taps.clone()
        changed[row, anchor:] += 1.0
        after = hidden_of(drafter, source, micro, changed)
        assert torch.equal(after[row, block], before[row, block])
        changed[row, anchor - 1] += 1.0
        after = hidden_of(drafter, source, micro, changed)
        assert not torch.equal(after[row, block], before[row, block])


def test_other_blocks_and_other_rows_change_nothing(config: Config) -> None:
    _, source, drafter = make(config)
    micro = batch(config, random_tokens())
    taps = source.taps(micro.tokens, micro.positions, micro.doc)
    before = hidden_of(drafter, source, micro, taps)
    tokens = micro.block_tokens.clone()
    tokens[0, 4] += 1  # the anchor token of the second block of the first row
    after = hidden_of(drafter, source, replace(micro, block_tokens=tokens), taps)
    same = (after == before).all(-1)
    assert not same[0, 4:8].any()
    assert same[0, :4].all() and same[0, 8:].all() and same[1].all()


def test_the_block_sees_itself_in_both_directions_unless_it_is_causal(config: Config) -> None:
    for kind, sees_ahead in (("plain", True), ("causal", False)):
        _, source, drafter = make(config, kind)
        micro = batch(config, random_tokens())
        taps = source.taps(micro.tokens, micro.positions, micro.doc)
        before = hidden_of(drafter, source, micro, taps)
        tokens = micro.block_tokens.clone()
        tokens[0, 3] = 7  # the last slot of the first block
        after = hidden_of(drafter, source, replace(micro, block_tokens=tokens), taps)
        assert bool((after[0, 0] != before[0, 0]).any()) is sees_ahead


def test_labels_are_the_tokens_at_the_slots_own_positions(config: Config) -> None:
    tokens = random_tokens()
    micro = batch(config, tokens)
    for row, number in np.ndindex(ANCHOR.shape):
        anchor = ANCHOR[row, number]
        assert micro.block_tokens[row, number * 4] == tokens[row, anchor]
        for slot in (1, 2, 3):
            if anchor + slot < tokens.shape[1]:
                assert micro.labels[row, number, slot - 1] == tokens[row, anchor + slot]
            else:
                assert not micro.valid[row, number, slot - 1]
    assert micro.block_positions[0, :4].tolist() == [9, 10, 11, 12]


def test_padding_anchors_change_neither_loss_nor_gradient(config: Config) -> None:
    _, source, drafter = make(config)
    tokens = random_tokens()
    padded = np.concatenate((ANCHOR, np.zeros_like(ANCHOR)), axis=1)
    keep = np.concatenate((np.ones_like(ANCHOR), np.zeros_like(ANCHOR)), axis=1).astype(bool)
    results = []
    for micro in (batch(config, tokens), batch(config, tokens, padded, keep)):
        taps = source.taps(micro.tokens, micro.positions, micro.doc)
        results.append(gradients(drafter, micro, taps, source.embedding_VH, source.head_VH, config.loss))
    assert results[0].denominator == pytest.approx(results[1].denominator)
    assert results[0].numerator == pytest.approx(results[1].numerator, rel=1e-6)
    torch.testing.assert_close(results[0].grads, results[1].grads, atol=1e-5, rtol=1e-4)


def test_two_documents_packed_into_one_row_are_two_documents_apart(config: Config) -> None:
    _, source, drafter = make(config)
    tokens = random_tokens()
    anchor = np.array([[9, 12], [8, 21]])
    apart = batch(config, tokens, anchor)
    length = tokens.shape[1]
    positions = np.tile(np.arange(length), 2)[None]
    packed = build_micro(
        tokens.reshape(1, -1),
        positions,
        np.repeat([0, 1], length)[None],
        positions >= config.data.prompt_tokens,
        np.concatenate((anchor[0], anchor[1] + length))[None],
        np.ones((1, 4), dtype=bool),
        block=config.draft.block,
    )
    losses = []
    for micro in (apart, packed):
        taps = source.taps(micro.tokens, micro.positions, micro.doc)
        loss, weight, _ = forward_loss(drafter, micro, taps, source.embedding_VH, source.head_VH, config.loss)
        losses.append((loss.item(), weight))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("kind", SEEN_MASKS)
def test_drafting_with_a_cache_is_what_was_trained(config: Config, kind: str) -> None:
    """One anchor: the hidden states of training give the tokens that serving drafts."""
    _, source, drafter = make(config, kind)
    tokens = random_tokens(rows=1)
    for anchor in (8, 13, 20):
        micro = batch(config, tokens, np.array([[anchor]]))
        taps = source.taps(micro.tokens, micro.positions, micro.doc)
        trained = (hidden_of(drafter, source, micro, taps)[0, 1:] @ source.head_VH.T).argmax(-1).tolist()
        context = ContextCache(drafter)
        context.append(taps[:, :5])
        context.append(taps[:, 5:anchor])
        served = draft(drafter, context, int(tokens[0, anchor]), source.embedding_VH, source.head_VH)
        assert served == trained


def test_the_drafter_has_the_published_tensors_and_shapes(config: Config) -> None:
    _, _, drafter = make(config)
    shapes = {name: tuple(p.shape) for name, p in drafter.named_parameters()}
    assert set(shapes) == tensor_names(2)
    assert len(tensor_names(5)) == 58
    assert shapes["fc.weight"] == (16, 32)
    assert shapes["layers.0.self_attn.k_proj.weight"] == (8, 16)
    assert shapes["layers.1.self_attn.q_norm.weight"] == (8,)


def test_the_default_sizes_are_the_measured_ones() -> None:
    config = Config()
    assert parameter_count(Target(config.target)) == 530_976
    assert parameter_count(Drafter(config.draft, 96, 3)) == 267_936


def test_default_taps_are_those_of_the_released_drafters() -> None:
    assert default_taps(36, 5) == (1, 9, 17, 25, 33)
    assert default_taps(28, 1) == (14,)
