"""What a target worker and a drafter worker do, step after step, whether threads or processes.

    loop --tasks--> target worker --features--> drafter worker --results--> loop

Micro-batch m of every step goes to target m mod T and drafter m mod D. There is one bounded way for each
(target, drafter) pair, read in the order of the micro-batches: with one way for all, an early micro-batch
of the next step could overtake and the barrier would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from dflash_trainer import faults
from dflash_trainer.batch import Micro, Rows
from dflash_trainer.config import Config, LossConfig
from dflash_trainer.devices import Layout
from dflash_trainer.drafter import Drafter
from dflash_trainer.drafting import Forward, MicroGrads, gradients
from dflash_trainer.features import FeatureSource

Prepare = Callable[[Drafter, Forward], None]


@dataclass(frozen=True, slots=True)
class Features:
    micro: Micro
    taps: Tensor  # [b, S, K*H] on the drafter's device


@dataclass(frozen=True, slots=True)
class Result:
    step: int
    micro: int
    sums: MicroGrads


class Line(Protocol):
    """A worker's way to the loop and to the other workers. Every wait may raise ClosedError: the run is over."""

    @property
    def version(self) -> int:
        """The step whose parameters are published, as far as this worker has heard."""
        ...

    def task(self) -> tuple[int, int]:
        """A target's next (step, micro-batch)."""
        ...

    def give(self, step: int, micro: int, batch: Micro, taps: Tensor) -> None:
        """Features to the drafter of this micro-batch; waits for a free place."""
        ...

    def features(self, step: int, micro: int) -> Features:
        """What `give` gave, on this drafter's device, until the result of the same micro-batch is given."""
        ...

    def wait_version(self, version: int) -> None:
        """The barrier before a step: until its parameters are published."""
        ...

    def give_result(self, step: int, micro: int, sums: MicroGrads) -> None: ...

    def moved(self, step: int) -> None:
        """This worker has finished its part of a step."""
        ...


def target_worker(source: FeatureSource, rows: Rows, device: torch.device, line: Line) -> None:
    """Turn tasks into features until the run is over."""
    while True:
        step, micro = line.task()
        batch = rows.micro(step, micro)
        here = batch.to(device)
        line.give(step, micro, batch, source.taps(here.tokens, here.positions, here.doc))
        line.moved(min(step, line.version + 1))


def drafter_worker(
    index: int,
    masters: Drafter,
    replica: Drafter,
    head: tuple[Tensor, Tensor],
    config: Config,
    layout: Layout,
    line: Line,
    injected: tuple[faults.Fault, ...],
    warm_up: Callable[[], Forward | None],
) -> None:
    """Forward and backward of this worker's micro-batches, between two barriers a step.

    Args:
        replica, head: lie on this worker's device; the head is the target's embedding and head.
        warm_up: compiles the replica, or returns None.
    """
    mine = [m for m in range(layout.micros) if layout.drafter_of(m) == index]
    last = index == len(layout.drafters) - 1
    run = warm_up()
    embedding_VH, head_VH = (weight.to(layout.dtype) for weight in head)
    for step in range(line.version + 1, config.steps + 1):
        line.wait_version(step - 1)
        pull(masters, replica)
        for micro in mine:
            ready = line.features(step, micro)
            poison = faults.in_worker(injected, step, chosen=last)
            sums = gradients(
                replica, ready.micro, ready.taps, embedding_VH, head_VH, config.loss, flex=layout.flex, forward=run
            )
            if micro == mine[-1]:
                line.moved(step)
            line.give_result(step, micro, poisoned(sums) if poison else sums)


def make_replica(masters: Drafter, config: Config, device: torch.device, dtype: torch.dtype) -> Drafter:
    replica = Drafter(config.draft, masters.norm.weight.shape[0], masters.fc.in_features // masters.fc.out_features)
    replica = replica.to(device, dtype)
    pull(masters, replica)
    return replica


@torch.no_grad()
def pull(masters: Drafter, replica: Drafter) -> None:
    """Copy the published parameters; nobody writes them between the barrier and the last result."""
    for mine, theirs in zip(replica.parameters(), masters.parameters(), strict=True):
        mine.copy_(theirs)


def poisoned(sums: MicroGrads) -> MicroGrads:
    return replace(sums, numerator=float("nan"), grads=[grad * float("nan") for grad in sums.grads])


def compile_once(rows: Rows, head_VH: Tensor, loss: LossConfig, *, flex: bool) -> Prepare:
    """Forward and backward of the run's one shape, on made-up features."""

    def prepare(replica: Drafter, run: Forward) -> None:
        parameter = replica.fc.weight
        micro = rows.micro(1, 0).to(parameter.device)
        shape = (*micro.tokens.shape, replica.fc.in_features)
        taps = torch.ones(shape, device=parameter.device, dtype=parameter.dtype)
        head = head_VH.to(parameter.device, parameter.dtype)
        gradients(replica, micro, taps, head, head, loss, flex=flex, forward=run)

    return prepare
