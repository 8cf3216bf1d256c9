"""Random draws that depend only on what they are for: anchors and the order of rows.

Each draw has a counter-based generator of its own, keyed by (seed, purpose, epoch, sample id), so it
is the same whichever worker makes it, after a resume, and beside any number of other draws.
Only Philox's raw stream is used: NumPy promises that one for ever, its distributions it does not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROW_ORDER, ANCHORS, PROMPTS = 0, 1, 2  # purposes


def raw(seed: int, purpose: int, epoch: int, sample: int, count: int) -> NDArray[np.uint64]:
    """`count` uniform 64-bit numbers."""
    key = np.array([seed, purpose], dtype=np.uint64)
    counter = np.array([0, 0, epoch, sample], dtype=np.uint64)
    return np.asarray(np.random.Philox(counter=counter, key=key).random_raw(count), dtype=np.uint64)


def row_order(seed: int, epoch: int, rows: int) -> NDArray[np.int64]:
    """A permutation of the rows, fresh each epoch."""
    return np.argsort(raw(seed, ROW_ORDER, epoch, 0, rows), kind="stable").astype(np.int64)


def draw_anchors(
    loss_mask: NDArray[np.bool_], doc: NDArray[np.int64], per_doc: int, *, seed: int, epoch: int, sample: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Anchors of one row: uniform without replacement in each document, sorted, padded to a constant count.

    A position is an anchor if it and the next one are supervised and in one document. Drawn per document:
    drawn per row, short documents would get next to none.

    Args:
        loss_mask, doc: [S].

    Returns:
        anchor [docs*per_doc] (padding is 0) and keep [docs*per_doc].
    """
    valid = loss_mask[:-1] & loss_mask[1:] & (doc[:-1] == doc[1:])
    keys = raw(seed, ANCHORS, epoch, sample, len(doc))
    docs = int(doc.max()) + 1
    anchor = np.zeros(docs * per_doc, dtype=np.int64)
    keep = np.zeros(docs * per_doc, dtype=np.bool_)
    for number in range(docs):
        candidates = np.flatnonzero(valid & (doc[:-1] == number))
        chosen = np.sort(candidates[np.argsort(keys[candidates], kind="stable")[:per_doc]])
        start = number * per_doc
        anchor[start : start + len(chosen)] = chosen
        keep[start : start + len(chosen)] = True
    return anchor, keep
