"""Rows, micro-batches and their labels: all a function of (seed, step, micro-batch), of no worker.

Shape legend: b rows of a micro-batch, S context, N anchors a row, B block, T = N*B.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dflash_trainer import anchors
from dflash_trainer.config import Config
from dflash_trainer.target import MASK_ID
from dflash_trainer.target_train import Corpus


@dataclass(frozen=True, slots=True)
class Micro:
    """One micro-batch on one device; constant shapes for a run.

    tokens, positions, doc: int64 [b, S]; anchor int64 [b, N]; keep bool [b, N];
    block_tokens, block_positions: int64 [b, T]; labels int64 [b, N, B-1]; valid bool [b, N, B-1].
    """

    tokens: Tensor
    positions: Tensor
    doc: Tensor
    anchor: Tensor
    keep: Tensor
    block_tokens: Tensor
    block_positions: Tensor
    labels: Tensor
    valid: Tensor

    def to(self, device: torch.device) -> Micro:
        moved = {f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)}
        return replace(self, **moved)


class Rows:
    """The corpus as rows of one or more documents, in an order that is fresh each epoch."""

    def __init__(self, corpus: Corpus, config: Config) -> None:
        self.config = config
        docs = config.data.docs_per_row
        count = corpus.tokens.shape[0] // docs
        length = corpus.tokens.shape[1]
        self.tokens = corpus.tokens[: count * docs].reshape(count, docs * length).numpy()
        self.doc = np.repeat(np.arange(docs, dtype=np.int64), length)
        self.positions = np.tile(np.arange(length, dtype=np.int64), docs)
        self.loss_mask = self.positions >= corpus.prompt_tokens

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    def ids(self, step: int, micro: int) -> tuple[int, list[int]]:
        """Epoch and row numbers of a micro-batch; a last part too short for a step is left out."""
        optim = self.config.optim
        steps_an_epoch = len(self) // optim.batch_rows
        epoch, within = divmod(step - 1, steps_an_epoch)
        order = anchors.row_order(self.config.seed, epoch, len(self))
        start = within * optim.batch_rows + micro * optim.micro_rows
        return epoch, [int(i) for i in order[start : start + optim.micro_rows]]

    def micro(self, step: int, micro: int) -> Micro:
        """Micro-batch number `micro` of step `step` (steps count from 1)."""
        epoch, ids = self.ids(step, micro)
        draft = self.config.draft
        drawn = [
            anchors.draw_anchors(self.loss_mask, self.doc, draft.anchors, seed=self.config.seed, epoch=epoch, sample=i)
            for i in ids
        ]
        rows = len(ids)
        return build_micro(
            self.tokens[ids],
            np.broadcast_to(self.positions, (rows, len(self.positions))),
            np.broadcast_to(self.doc, (rows, len(self.doc))),
            np.broadcast_to(self.loss_mask, (rows, len(self.loss_mask))),
            np.stack([a for a, _ in drawn]),
            np.stack([k for _, k in drawn]),
            block=draft.block,
        )


def build_micro(
    tokens: NDArray[np.int64],
    positions: NDArray[np.int64],
    doc: NDArray[np.int64],
    loss_mask: NDArray[np.bool_],
    anchor: NDArray[np.int64],
    keep: NDArray[np.bool_],
    *,
    block: int,
) -> Micro:
    """Blocks and labels for given anchors: slot 0 is the clean anchor token, the rest mask slots.

    Slot k of anchor a is labelled with token a+k (same position, no shift), valid if that lies inside the
    row, in the anchor's document and is supervised. Arrays: [b, S], anchors [b, N].
    """
    rows, length = tokens.shape
    row = np.arange(rows)[:, None, None]
    at = anchor[:, :, None] + np.arange(1, block)
    inside = np.minimum(at, length - 1)
    same_doc = doc[row, inside] == doc[row, anchor[:, :, None]]
    valid = keep[:, :, None] & (at < length) & same_doc & loss_mask[row, inside]
    block_tokens = np.full((*anchor.shape, block), MASK_ID, dtype=np.int64)
    block_tokens[:, :, 0] = tokens[row[:, :, 0], anchor]
    block_positions = positions[row[:, :, 0], anchor][:, :, None] + np.arange(block)

    def tensor(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.array(array))  # a copy: broadcast views are read-only

    return Micro(
        tokens=tensor(tokens),
        positions=tensor(positions),
        doc=tensor(doc),
        anchor=tensor(anchor),
        keep=tensor(keep),
        block_tokens=tensor(block_tokens.reshape(rows, -1)),
        block_positions=tensor(block_positions.reshape(rows, -1)),
        labels=tensor(tokens[row, inside]),
        valid=tensor(valid),
    )
