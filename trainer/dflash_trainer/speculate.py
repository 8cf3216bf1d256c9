"""Real greedy draft-and-verify decoding, and the acceptance length it reaches.

Shape legend: P prompt, B block, V vocabulary, K*H concatenated taps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from dflash_trainer.attention import dense_mask
from dflash_trainer.drafter import Drafter, KeyValue
from dflash_trainer.target import MASK_ID, KeyValueCache, Target, concat_taps, generate


@dataclass(frozen=True, slots=True)
class Decoded:
    """tokens: the response; emitted: tokens gained by each verify step (accepted drafts + 1)."""

    tokens: list[int]
    emitted: list[int]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance length over prompts.

    pooled: tokens emitted / verify steps of all prompts; per_prompt: mean of each prompt's own mean
    (published figures use either, and they differ); identical: prompts whose output is plain greedy's;
    ties: prompts that differ where two logits are equal within the margin; wrong: prompts that differ otherwise.
    """

    pooled: float
    per_prompt: float
    identical: int
    ties: int
    wrong: int
    prompts: int


class ContextCache:
    """The drafter's keys and values of verified positions; grows, never shrinks."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.layers: list[KeyValue] = []
        self.length = 0

    def append(self, taps_1LKH: Tensor) -> None:
        new = taps_1LKH.shape[1]
        positions = torch.arange(self.length, self.length + new, device=taps_1LKH.device)[None]
        added = self.drafter.context_key_values(self.drafter.fuse(taps_1LKH), positions)
        self.layers = (
            [
                (torch.cat((k, nk), 2), torch.cat((v, nv), 2))
                for (k, v), (nk, nv) in zip(self.layers, added, strict=True)
            ]
            if self.layers
            else added
        )
        self.length += new


@torch.no_grad()
def draft(drafter: Drafter, context: ContextCache, bonus: int, embedding_VH: Tensor, head_VH: Tensor) -> list[int]:
    """The block [bonus, mask x (B-1)] behind the verified context: B-1 drafted tokens."""
    block, device, at = drafter.shape.block, head_VH.device, context.length
    tokens = torch.tensor([[bonus] + [MASK_ID] * (block - 1)], device=device)
    positions = torch.arange(at, at + block, device=device)[None]
    mask = None
    if drafter.shape.causal or drafter.shape.window:
        one = torch.full((1, 1), at, device=device)
        doc = torch.zeros((1, at + 1), dtype=torch.int64, device=device)
        mask = dense_mask(one, one > 0, doc, drafter.shape)
        mask = torch.cat((mask[..., :at], mask[..., at + 1 :]), dim=-1)  # the anchor is no context yet
    hidden = drafter.body(F.embedding(tokens, embedding_VH), positions, context.layers, mask)
    return cast("list[int]", (hidden[0, 1:] @ head_VH.T).argmax(-1).tolist())


@torch.no_grad()
def speculate(target: Target, drafter: Drafter, taps: tuple[int, ...], prompt_P: Tensor, count: int) -> Decoded:
    """`count` response tokens: draft a block, verify it in one causal forward, keep the longest right prefix."""
    device = target.lm_head.weight.device
    cache = KeyValueCache(target, 1, len(prompt_P) + count + drafter.shape.block)
    context = ContextCache(drafter)
    first = target(prompt_P[None].to(device), cache=cache)
    context.append(concat_taps(first.layers, taps))
    tokens = [int(cast(Tensor, first.logits)[0, -1].argmax())]
    emitted: list[int] = []
    while len(tokens) < count:
        start = cache.length
        drafts = draft(drafter, context, tokens[-1], target.embed_tokens.weight, target.lm_head.weight)
        seen = target(torch.tensor([[tokens[-1], *drafts]], device=device), cache=cache)
        choice: list[int] = cast(Tensor, seen.logits)[0].argmax(-1).tolist()
        right = 0
        while right < len(drafts) and drafts[right] == choice[right]:
            right += 1
        cache.crop(start + right + 1)
        context.append(concat_taps(seen.layers, taps)[:, : right + 1])
        tokens += choice[: right + 1]
        emitted.append(right + 1)
    return Decoded(tokens[:count], emitted)


@torch.no_grad()
def measure(
    target: Target,
    drafter: Drafter,
    taps: tuple[int, ...],
    prompts_nP: Tensor,
    count: int,
    *,
    plain_nC: Tensor,
    tie_margin: float,
    tick: Callable[[], None] = lambda: None,
) -> Acceptance:
    """Decode every prompt and compare with plain greedy output `plain_nC` [n, count]."""
    decoded = []
    for prompt in prompts_nP:
        decoded.append(speculate(target, drafter, taps, prompt, count))
        tick()
    ties = wrong = 0
    for prompt, plain, got in zip(prompts_nP, plain_nC.tolist(), decoded, strict=True):
        if got.tokens != plain:
            tie = _is_tie(target, prompt, plain, got.tokens, tie_margin)
            ties, wrong = ties + tie, wrong + (not tie)
    steps = [step for got in decoded for step in got.emitted]
    means = [sum(got.emitted) / len(got.emitted) for got in decoded]
    return Acceptance(
        pooled=sum(steps) / len(steps),
        per_prompt=sum(means) / len(means),
        identical=len(decoded) - ties - wrong,
        ties=ties,
        wrong=wrong,
        prompts=len(decoded),
    )


@torch.no_grad()
def plain_greedy(target: Target, prompts_nP: Tensor, count: int) -> Tensor:
    """What the target writes alone, one prompt at a time: the truth that speculation must equal."""
    device = target.lm_head.weight.device
    return torch.cat([generate(target, prompt[None].to(device), count) for prompt in prompts_nP]).cpu()


def _is_tie(target: Target, prompt: Tensor, plain: list[int], got: list[int], margin: float) -> bool:
    """Whether the two part where the target itself cannot tell: one forward of B tokens and B forwards of one
    round differently, and equal logits then fall either way."""
    at = next(i for i, (a, b) in enumerate(zip(plain, got, strict=True)) if a != b)
    tokens = torch.cat((prompt, torch.tensor(plain[:at], dtype=torch.int64)))
    logits = target(tokens[None].to(target.lm_head.weight.device)).logits[0, -1].float()
    return float((logits[plain[at]] - logits[got[at]]).abs()) <= margin
