from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dflash_trainer.config import Config
from dflash_trainer.drafter import Drafter
from dflash_trainer.speculate import measure, plain_greedy, speculate
from dflash_trainer.target import KeyValueCache, Target, frozen, generate


def prompts(count: int = 3, length: int = 8) -> torch.Tensor:
    return torch.randint(256, (count, length), generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("change", [{}, {"causal": True}, {"window": 4}, {"block": 2}])
def test_speculative_output_is_plain_greedy_output_token_by_token(config: Config, change: dict[str, object]) -> None:
    target = frozen(Target(config.target))
    drafter = Drafter(replace(config.draft, **change), config.target.hidden, 2)
    plain = plain_greedy(target, prompts(), 20)
    for prompt, want in zip(prompts(), plain.tolist(), strict=True):
        got = speculate(target, drafter, (0, 1), prompt, 20)
        assert got.tokens == want
        assert all(1 <= step <= drafter.shape.block for step in got.emitted)


def test_a_drafter_that_is_always_right_gains_a_whole_block_each_step(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = frozen(Target(config.target))
    drafter = Drafter(config.draft, config.target.hidden, 2)
    plain = plain_greedy(target, prompts(1), 24)[0].tolist()

    def oracle(_drafter: object, context: object, bonus: int, *_: object) -> list[int]:
        at = context.length - 8  # type: ignore[attr-defined]
        assert plain[at] == bonus
        return [*plain[at + 1 : at + 4], 0, 0, 0][:3]

    monkeypatch.setattr("dflash_trainer.speculate.draft", oracle)
    got = speculate(target, drafter, (0, 1), prompts(1)[0], 21)
    assert got.tokens == plain[:21]
    assert got.emitted == [4, 4, 4, 4, 4]


def test_a_wrong_output_is_told_from_a_tie(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    target = frozen(Target(config.target))
    drafter = Drafter(config.draft, config.target.hidden, 2)
    plain = plain_greedy(target, prompts(), 8)
    wrong = plain.clone()
    wrong[1, 5] = (wrong[1, 5] + 1) % 256
    got = measure(target, drafter, (0, 1), prompts(), 8, plain_nC=wrong, tie_margin=1e-4)
    assert (got.identical, got.ties, got.wrong) == (2, 0, 1)
    got = measure(target, drafter, (0, 1), prompts(), 8, plain_nC=wrong, tie_margin=100.0)
    assert (got.identical, got.ties, got.wrong) == (2, 1, 0)


def test_pooled_and_per_prompt_acceptance_are_two_figures(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    from dflash_trainer import speculate as module

    emitted = iter([[4, 4], [1] * 8])
    plain = torch.zeros(2, 9, dtype=torch.int64)
    monkeypatch.setattr(module, "speculate", lambda *_: module.Decoded([0] * 9, next(emitted)))
    target = frozen(Target(config.target))
    got = measure(target, Drafter(config.draft, 16, 2), (0, 1), prompts(2), 9, plain_nC=plain, tie_margin=0.0)
    assert got.pooled == pytest.approx(16 / 10)
    assert got.per_prompt == pytest.approx(2.5)


def test_the_cache_changes_nothing_also_after_a_crop(config: Config) -> None:
    target = frozen(Target(config.target))
    tokens = prompts(2, 12)
    whole = target(tokens).logits
    cache = KeyValueCache(target, 2, 12)
    target(tokens[:, :9], cache=cache)
    cache.crop(5)
    rest = target(tokens[:, 5:], cache=cache).logits
    torch.testing.assert_close(rest, whole[:, 5:], atol=1e-5, rtol=1e-4)
    assert torch.equal(generate(target, tokens, 1)[:, 0], whole[:, -1].argmax(-1))
