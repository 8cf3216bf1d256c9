from __future__ import annotations

import numpy as np

from dflash_trainer import anchors

MASK = np.array([False] * 8 + [True] * 16 + [False] * 4 + [True] * 4)
DOC = np.array([0] * 24 + [1] * 8)


def draw(seed: int = 1, epoch: int = 0, sample: int = 0, count: int = 6):
    return anchors.draw_anchors(MASK, DOC, count, seed=seed, epoch=epoch, sample=sample)


def test_anchors_are_sorted_different_and_supervised_with_their_next_token() -> None:
    for sample in range(50):
        anchor, keep = draw(sample=sample)
        for part in (slice(0, 6), slice(6, 12)):
            kept = anchor[part][keep[part]]
            assert (np.diff(kept) > 0).all()
            assert MASK[kept].all() and MASK[kept + 1].all()


def test_each_document_gets_its_own_anchors_and_padding_fills_the_rest() -> None:
    anchor, keep = draw()
    assert keep[:6].all() and (DOC[anchor[:6]] == 0).all()
    assert keep[6:].sum() == 3  # positions 28, 29, 30: the last one has no next token
    assert (DOC[anchor[6:9]] == 1).all() and (anchor[9:] == 0).all()


def test_no_anchor_spans_two_documents() -> None:
    doc = np.array([0, 0, 0, 1, 1, 1])
    anchor, keep = anchors.draw_anchors(np.ones(6, dtype=bool), doc, 4, seed=0, epoch=0, sample=0)
    assert 2 not in anchor[keep]


def test_a_draw_depends_on_its_key_and_on_nothing_drawn_before() -> None:
    first = [draw(sample=i)[0].tolist() for i in (3, 7)]
    draw(sample=1)
    assert [draw(sample=i)[0].tolist() for i in (7, 3)] == first[::-1]
    assert draw(epoch=1)[0].tolist() != draw(epoch=0)[0].tolist()
    assert draw(seed=2)[0].tolist() != draw(seed=1)[0].tolist()


def test_all_supervised_positions_are_drawn_equally_often() -> None:
    counts = np.zeros(32)
    for sample in range(2000):
        anchor, keep = draw(sample=sample, count=3)
        counts[anchor[keep]] += 1
    share = counts[8:23] / 2000
    assert abs(share - 3 / 15).max() < 0.05


def test_an_epoch_visits_every_row_once_in_an_order_of_its_own() -> None:
    orders = [anchors.row_order(0, epoch, 40).tolist() for epoch in (0, 1)]
    assert orders[0] != orders[1]
    assert all(sorted(order) == list(range(40)) for order in orders)
