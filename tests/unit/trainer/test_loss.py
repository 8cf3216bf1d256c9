from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from dflash_trainer.loss import slot_weights, weighted_ce


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_value_and_gradient_are_those_of_plain_cross_entropy(chunk: int) -> None:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(13, 6, generator=generator, requires_grad=True)
    head = torch.randn(11, 6, generator=generator)
    labels = torch.randint(11, (13,), generator=generator)
    weights = torch.rand(13, generator=generator) * (torch.arange(13) % 3 > 0)
    plain = (F.cross_entropy(hidden @ head.T, labels, reduction="none") * weights).sum()
    (want,) = torch.autograd.grad(plain * 0.5, hidden)
    ours, hits = weighted_ce(hidden, head, labels, weights, chunk=chunk)
    (got,) = torch.autograd.grad(ours * 0.5, hidden)
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(got, want)
    assert torch.equal(hits, (hidden @ head.T).argmax(-1) == labels)


def test_slot_weights_fall_with_the_distance_from_the_anchor() -> None:
    weights = slot_weights(8, 4.0)
    assert len(weights) == 7
    assert weights[0] == 1.0
    assert math.isclose(float(weights[4]), math.exp(-1.0), rel_tol=1e-6)
