"""The inside of a worker process: its half of the shared memory, its line to the loop and to the other workers."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from dflash_trainer import config_load
from dflash_trainer.batch import Micro, Rows
from dflash_trainer.config import Config
from dflash_trainer.devices import Layout
from dflash_trainer.drafter import Drafter
from dflash_trainer.drafting import Forward, MicroGrads
from dflash_trainer.exits import ClosedError
from dflash_trainer.faults import Fault
from dflash_trainer.features import LocalTarget
from dflash_trainer.messages import receive, send
from dflash_trainer.shared import GRAD_PLACES, Arena
from dflash_trainer.target import Target, frozen
from dflash_trainer.target_train import Corpus
from dflash_trainer.workers import Features, compile_once, drafter_worker, make_replica, target_worker


def work(name: str, way: Connection) -> None:
    """Take the loop's word for what there is to do, and do it.

    Raises:
        ClosedError: the run is over. Whatever the work raises.
    """
    line, config, taps, injected = _open(name, way)
    torch.set_num_threads(config.layout.torch_threads)
    if line.device.type == "cuda":
        torch.cuda.set_device(line.device)  # no context on any other
        line.arena.pin()
    if name.startswith("target-"):
        target = Target(config.target)
        target.load_state_dict(line.arena.below("target."), assign=True)
        source = LocalTarget(frozen(target).to(line.device), taps)
        line.send("ready")
        target_worker(source, line.rows, line.device, line)
    masters = Drafter(config.draft, config.target.hidden, len(taps))
    masters.load_state_dict(line.arena.below("masters."), assign=True)
    replica = make_replica(masters, config, line.device, line.layout.dtype)
    embedding, head = (line.arena[f"target.{part}.weight"].to(line.device) for part in ("embed_tokens", "lm_head"))

    def warm_up() -> Forward | None:
        run: Forward | None = None
        if line.layout.compiled:
            run = torch.compile(replica, dynamic=False)
            compile_once(line.rows, head, config.loss, flex=line.layout.flex)(replica, run)
            torch.compiler.set_stance("fail_on_recompile")  # a later recompile is an error, not a slow-down
        line.send("ready")
        return run

    drafter_worker(line.index, masters, replica, (embedding, head), config, line.layout, line, injected, warm_up)


@dataclass(slots=True)
class SocketLine:
    """A process's line. Waits have no limit of their own: the loop has, and its end is ours.

    pairs: a target's ways to its drafters, or a drafter's to its targets, by index.
    """

    index: int
    way: Connection
    pairs: list[Connection]
    arena: Arena
    layout: Layout
    rows: Rows
    device: torch.device
    depth: int
    version: int
    free: list[int]  # places that the loop or a drafter has not got
    used: list[int]  # places filled or read so far, a pair each
    grads: list[list[Tensor]]
    given: int = 0
    grads_free: int = GRAD_PLACES
    tasks: deque[tuple[int, int]] = field(default_factory=deque)

    def task(self) -> tuple[int, int]:
        while not self.tasks:
            self._wait()
        return self.tasks.popleft()

    def give(self, step: int, micro: int, batch: Micro, taps: Tensor) -> None:
        """The rows need no way: they are a function of (step, micro-batch)."""
        drafter = self.layout.drafter_of(micro)
        while self.free[drafter] == 0:
            if self._wait(self.pairs[drafter]):
                self._receive(self.pairs[drafter])
                self.free[drafter] += 1
        self._taps(self.index, drafter, drafter).copy_(taps)
        self.free[drafter] -= 1
        self.used[drafter] += 1
        self.send(step, micro, way=self.pairs[drafter])

    def features(self, step: int, micro: int) -> Features:
        target = self.layout.target_of(micro)
        while not self._wait(self.pairs[target]):
            pass
        got = self._receive(self.pairs[target])
        assert got == [step, micro], f"target-{target} gave {got}, step {step} micro-batch {micro} is next"
        taps = self._taps(target, self.index, target).to(self.device)  # on the CPU the shared memory itself
        return Features(self.rows.micro(step, micro).to(self.device), taps)

    def wait_version(self, version: int) -> None:
        while self.version < version:
            self._wait()

    def give_result(self, step: int, micro: int, sums: MicroGrads) -> None:
        target = self.layout.target_of(micro)
        self.used[target] += 1
        self.send("free", way=self.pairs[target])
        while self.grads_free == 0:
            self._wait()
        for place, grad in zip(self.grads[self.given % GRAD_PLACES], sums.grads, strict=True):
            place.copy_(grad)
        self.given += 1
        self.grads_free -= 1
        hits, counts = sums.hits.tolist(), sums.counts.tolist()
        self.send("result", step, micro, sums.numerator, sums.denominator, sums.tokens, hits, counts)

    def moved(self, step: int) -> None:
        self.send("moved", step)

    def send(self, *message: object, way: Connection | None = None) -> None:
        try:
            send(way or self.way, *message)
        except OSError:
            raise ClosedError from None  # the other end is gone; the loop knows why

    def _taps(self, target: int, drafter: int, pair: int) -> Tensor:
        return self.arena[f"taps.{target}.{drafter}.{self.used[pair] % self.depth}"]

    def _wait(self, other: Connection | None = None) -> bool:
        """Until something comes; what the loop says is taken in. True: something is there from `other`."""
        ready = wait([self.way] if other is None else [self.way, other])
        if self.way in ready:
            kind, *rest = self._receive(self.way)
            if kind == "version":
                self.version = rest[0]
            elif kind == "feed":
                mine = (m for m in range(self.layout.micros) if self.layout.target_of(m) == self.index)
                self.tasks.extend((rest[0], micro) for micro in mine)
            elif kind == "taken":
                self.grads_free += 1
            else:
                raise ClosedError
        return other in ready

    def _receive(self, way: Connection) -> list[Any]:
        try:
            return receive(way)
        except (EOFError, OSError):
            raise ClosedError from None


def _open(name: str, way: Connection) -> tuple[SocketLine, Config, tuple[int, ...], tuple[Fault, ...]]:
    (spec,) = receive(way)
    config = config_load.from_flat(spec["config"])
    told = spec["layout"]
    layout = Layout(
        **{
            **told,
            "targets": tuple(told["targets"]),
            "drafters": tuple(told["drafters"]),
            "dtype": getattr(torch, told["dtype"]),
        }
    )
    fd, plan = spec["arena"]
    for inherited in (fd, *spec["pairs"]):
        os.set_inheritable(inherited, False)
    arena = Arena(fd, [(part, dtype, shape) for part, dtype, shape in plan])
    corpus = Corpus(arena["corpus.tokens"], torch.empty(0), spec["prompt_tokens"], "")
    pairs = [Connection(each) for each in spec["pairs"]]
    index = spec["index"]
    line = SocketLine(
        index=index,
        way=way,
        pairs=pairs,
        arena=arena,
        layout=layout,
        rows=Rows(corpus, config),
        device=torch.device(layout.devices[name]),
        depth=config.layout.queue_depth,
        version=spec["version"],
        free=[config.layout.queue_depth] * len(pairs),
        used=[0] * len(pairs),
        grads=[
            list(arena.below(f"grads.{index}.{place}.").values()) if name.startswith("drafter-") else []
            for place in range(GRAD_PLACES)
        ],
    )
    return line, config, tuple(spec["taps"]), tuple(Fault(kind, step, None) for kind, step in spec["faults"])
