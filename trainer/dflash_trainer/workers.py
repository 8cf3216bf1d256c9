"""What a target worker and a drafter worker do, step after step.

    loop --tasks--> target worker --features--> drafter worker --results--> loop

Micro-batch m of every step goes to target m mod T and drafter m mod D. There is one bounded queue for each
(target, drafter) pair, read in the order of the micro-batches: with one queue for all, an early micro-batch
of the next step could overtake and the barrier would wait for ever.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dflash_trainer import faults
from dflash_trainer.batch import Micro, Rows
from dflash_trainer.config import Config
from dflash_trainer.devices import Layout
from dflash_trainer.drafter import Drafter
from dflash_trainer.drafting import Forward, MicroGrads, gradients
from dflash_trainer.features import FeatureSource
from dflash_trainer.pool import Board

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


@dataclass(frozen=True, slots=True)
class Channels:
    """tasks[t]: (step, micro) for target t; features[t][d]; results: for the loop."""

    tasks: list[queue.Queue[tuple[int, int]]]
    features: list[list[queue.Queue[Features]]]
    results: queue.Queue[Result]


def channels(layout: Layout, depth: int) -> Channels:
    return Channels(
        tasks=[queue.Queue() for _ in layout.targets],
        features=[[queue.Queue(depth) for _ in layout.drafters] for _ in layout.targets],
        results=queue.Queue(),
    )


def target_worker(
    index: int, source: FeatureSource, rows: Rows, layout: Layout, ways: Channels, board: Board
) -> Callable[[], None]:
    """Turn tasks into features on the device of the drafter that will use them."""
    name, device = f"target-{index}", torch.device(layout.targets[index])

    def work() -> None:
        while True:
            step, micro = board.take(ways.tasks[index], f"{name} (no task)")
            drafter = layout.drafter_of(micro)
            batch = rows.micro(step, micro)
            here = batch.to(device)
            taps = source.taps(here.tokens, here.positions, here.doc)
            there = torch.device(layout.drafters[drafter])
            ready = Features(batch.to(there), taps.to(there, layout.dtype))
            board.put(ways.features[index][drafter], ready, f"{name} -> drafter-{drafter}")
            board.moved(name, min(step, board.version + 1))

    return work


def drafter_worker(
    index: int,
    masters: Drafter,
    replica: Drafter,
    source: FeatureSource,
    config: Config,
    layout: Layout,
    ways: Channels,
    board: Board,
    injected: tuple[faults.Fault, ...],
    warm: Warm,
) -> Callable[[], None]:
    """Forward and backward of this worker's micro-batches, between two barriers a step.

    Args:
        replica, source: lie on this worker's device; the source gives embedding and head.
    """
    name = f"drafter-{index}"
    mine = [m for m in range(layout.micros) if layout.drafter_of(m) == index]
    last = index == len(layout.drafters) - 1

    def work() -> None:
        run = warm.up(replica, layout)
        embedding, head = source.embedding_VH.to(layout.dtype), source.head_VH.to(layout.dtype)
        for step in range(board.version + 1, config.steps + 1):
            board.wait_version(step - 1, name)
            pull(masters, replica)
            for micro in mine:
                ready = board.take(ways.features[layout.target_of(micro)][index], f"{name} (no features)")
                poison = faults.in_worker(injected, step, chosen=last)
                sums = gradients(
                    replica, ready.micro, ready.taps, embedding, head, config.loss, flex=layout.flex, forward=run
                )
                if micro == mine[-1]:
                    board.moved(name, step)
                ways.results.put(Result(step, micro, poisoned(sums) if poison else sums))

    return work


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


class Warm:
    """Compiles one worker at a time, forward and backward, before any worker trains.

    Serial, because two threads that trace at once race for a process-wide flag, and a compile inside
    backward can wait for a lock whose holder waits for that backward.
    """

    def __init__(self, prepare: Prepare | None, workers: int) -> None:
        self._lock = threading.Lock()
        self._prepare = prepare
        self._left = workers
        self.done = threading.Event()
        if prepare is None:
            self.done.set()

    def up(self, replica: Drafter, layout: Layout) -> Forward | None:
        if self._prepare is None:
            return None
        from dflash_trainer import fx_guard

        fx_guard.worker_init()
        run: Forward = torch.compile(replica, dynamic=False)
        with self._lock:
            self._prepare(replica, run)
            self._left -= 1
            if self._left == 0:
                self.done.set()
        return run
