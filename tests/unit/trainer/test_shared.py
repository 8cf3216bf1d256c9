from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from dflash_trainer.batch import Rows
from dflash_trainer.config import Config
from dflash_trainer.devices import Layout
from dflash_trainer.drafting import MicroGrads
from dflash_trainer.exits import ClosedError
from dflash_trainer.messages import pair, receive, send
from dflash_trainer.shared import ALIGN_BYTES, GRAD_PLACES, Arena
from dflash_trainer.target_train import Corpus
from dflash_trainer.worker_line import SocketLine

DEPTH = 2
LAYOUT = Layout("processes", ("cpu",), ("cpu",), 4, torch.float32, flex=False, compiled=False)


def test_what_one_mapping_writes_another_reads_and_no_tensor_touches_its_neighbour() -> None:
    ours = Arena.create({"a": (torch.int64, (3,)), "b.x": (torch.bfloat16, (2, 5)), "b.y": (torch.float32, ())})
    theirs = Arena(os.dup(ours.fd), ours.plan)
    ours["b.x"].fill_(2.5)
    ours["a"].copy_(torch.tensor([1, -2, 3]))
    ours["b.y"].fill_(7.0)
    assert theirs["a"].tolist() == [1, -2, 3]
    assert theirs["b.x"].tolist() == [[2.5] * 5] * 2
    assert list(theirs.below("b.")) == ["x", "y"]
    assert float(theirs["b.y"]) == 7.0
    assert all(theirs[name].data_ptr() % ALIGN_BYTES == 0 for name in ("a", "b.x", "b.y"))


def test_a_float_arrives_as_the_float_it_was() -> None:
    here, there = pair()
    values = [0.1 + 0.2, 5e-324, -1.7976931348623157e308, math.inf]
    send(here, *values, math.nan)
    *got, last = receive(there)
    assert got == values and math.isnan(last)


def test_a_way_whose_other_end_is_gone_says_so() -> None:
    here, there = pair()
    there.close()
    with pytest.raises(OSError):
        send(here, "x")
    with pytest.raises((EOFError, OSError)):
        receive(here)


class Lines:
    """A target's and a drafter's line in this process, and the loop's ends of both."""

    def __init__(self, config: Config) -> None:
        tokens = torch.arange(12 * 24).reshape(12, 24) % 256
        config = replace(config, optim=replace(config.optim, batch_rows=8))
        self.rows = Rows(Corpus(tokens, torch.empty(0), 8, ""), config)
        names = {f"taps.0.0.{place}": (torch.float32, (2, 24, 6)) for place in range(DEPTH)}
        grads = {f"grads.0.{place}.w": (torch.float32, (3,)) for place in range(GRAD_PLACES)}
        self.arena = Arena.create(names | grads)
        at_target, at_drafter = pair()
        self.loop_target, target_way = pair()
        self.loop_drafter, drafter_way = pair()
        self.target = self._line(target_way, at_target)
        self.drafter = self._line(drafter_way, at_drafter)

    def _line(self, way: object, other: object) -> SocketLine:
        return SocketLine(
            index=0, way=way, pairs=[other], arena=self.arena, layout=LAYOUT, rows=self.rows,
            device=torch.device("cpu"), depth=DEPTH, version=0, free=[DEPTH], used=[0],
            grads=[list(self.arena.below(f"grads.0.{place}.").values()) for place in range(GRAD_PLACES)],
        )  # type: ignore[arg-type]  # fmt: skip

    def give(self, micro: int) -> None:
        self.target.give(1, micro, self.rows.micro(1, micro), torch.full((2, 24, 6), float(micro)))


@pytest.fixture
def lines(config: Config) -> Iterator[Lines]:
    yield Lines(config)


def sums(value: float) -> MicroGrads:
    return MicroGrads([torch.full((3,), value)], value, 2.0, torch.tensor([1, 0]), torch.tensor([2, 2]), 48)


def test_a_target_waits_for_a_place_that_its_drafter_has_given_back(lines: Lines) -> None:
    lines.give(0)
    lines.give(1)
    third = threading.Thread(target=lines.give, args=(2,), daemon=True)
    third.start()
    first = lines.drafter.features(1, 0)
    third.join(0.05)
    assert third.is_alive() and float(first.taps.max()) == 0.0  # not overwritten while it is in use
    lines.drafter.give_result(1, 0, sums(1.0))
    third.join(30)
    assert not third.is_alive()
    assert float(lines.drafter.features(1, 1).taps.min()) == 1.0
    assert torch.equal(first.micro.tokens, lines.rows.micro(1, 0).tokens)


def test_a_drafter_waits_until_the_loop_has_taken_its_gradients(lines: Lines) -> None:
    def work() -> None:
        for micro in range(GRAD_PLACES + 1):
            lines.give(micro)
            lines.drafter.features(1, micro)
            lines.drafter.give_result(1, micro, sums(float(micro)))

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    for micro in range(GRAD_PLACES):
        assert receive(lines.loop_drafter) == ["result", 1, micro, float(micro), 2.0, 48, [1, 0], [2, 2]]
    worker.join(0.05)
    assert worker.is_alive() and lines.arena["grads.0.0.w"].tolist() == [0.0] * 3
    send(lines.loop_drafter, "taken")
    assert receive(lines.loop_drafter)[:3] == ["result", 1, GRAD_PLACES]
    worker.join(30)
    assert lines.arena["grads.0.0.w"].tolist() == [float(GRAD_PLACES)] * 3


def test_the_loops_words_open_the_barrier_bring_tasks_and_end_it_all(lines: Lines) -> None:
    send(lines.loop_target, "version", 4)
    send(lines.loop_target, "feed", 5)
    assert [lines.target.task() for _ in range(4)] == [(5, micro) for micro in range(4)]
    assert lines.target.version == 4
    lines.target.wait_version(4)
    send(lines.loop_target, "close")
    with pytest.raises(ClosedError):
        lines.target.task()


@pytest.mark.parametrize("gone", ["loop", "other worker"])
def test_whoever_waits_leaves_when_the_other_end_is_gone(lines: Lines, gone: str) -> None:
    (lines.loop_drafter if gone == "loop" else lines.target.pairs[0]).close()
    with pytest.raises(ClosedError):
        lines.drafter.features(1, 0)
