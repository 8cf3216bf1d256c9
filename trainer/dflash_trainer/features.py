"""Where a drafter's inputs come from: the seam where another target can be plugged in.

Shape legend: b rows, S context, K tapped layers, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from dflash_trainer.target import Target, concat_taps


class FeatureSource(Protocol):
    """What training needs of a target: raw taps, and the frozen table and head."""

    @property
    def tap_layers(self) -> tuple[int, ...]: ...

    @property
    def embedding_VH(self) -> Tensor: ...

    @property
    def head_VH(self) -> Tensor: ...

    def taps(self, tokens_bS: Tensor, positions_bS: Tensor, doc_bS: Tensor) -> Tensor:
        """Outputs of the tapped layers, concatenated: [b, S, K*H]; K raw layers, because fc is trained."""
        ...


class LocalTarget:
    """The small target on one device; its forward ends behind the deepest tap."""

    def __init__(self, target: Target, tap_layers: Sequence[int]) -> None:
        self.target = target
        self.tap_layers = tuple(tap_layers)

    @property
    def embedding_VH(self) -> Tensor:
        return self.target.embed_tokens.weight

    @property
    def head_VH(self) -> Tensor:
        return self.target.lm_head.weight

    @torch.no_grad()
    def taps(self, tokens_bS: Tensor, positions_bS: Tensor, doc_bS: Tensor) -> Tensor:
        packed = doc_bS if bool(doc_bS.any()) else None
        outputs = self.target(
            tokens_bS, positions_bL=positions_bS, doc_bL=packed, stop_after=self.tap_layers[-1]
        ).layers
        return concat_taps(outputs, self.tap_layers)
