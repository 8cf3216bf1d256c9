"""Workers as threads of this process: queues between them, one compile at a time before any of them trains."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dflash_trainer import fx_guard, log
from dflash_trainer.batch import Micro
from dflash_trainer.devices import Layout
from dflash_trainer.drafter import Drafter
from dflash_trainer.drafting import Forward, MicroGrads
from dflash_trainer.features import LocalTarget
from dflash_trainer.pool import SLICE_S, Board
from dflash_trainer.session import Session
from dflash_trainer.target import Target, frozen
from dflash_trainer.workers import (
    Features,
    Prepare,
    Result,
    compile_once,
    drafter_worker,
    make_replica,
    target_worker,
)


class ThreadPool:
    """The threads of one attempt. A `pool.Pool`."""

    def __init__(self, session: Session) -> None:
        layout, config = session.layout, session.config
        self._session = session
        self._ways = channels(layout, config.layout.queue_depth)
        self.board = Board(layout.devices, version=session.step, limit_s=config.limits.barrier_s)

    def launch(self) -> None:
        """The guard must be there before the first compile."""
        if self._session.layout.compiled:
            log.info("guard", f"thread_local={fx_guard.install()}")

    def start(self) -> None:
        """Start all workers and wait until each is warm."""
        session, board = self._session, self.board
        layout, config, threads = session.layout, session.config, session.config.layout.torch_threads
        head_VH = session.target.lm_head.weight
        prepare = compile_once(session.rows, head_VH, config.loss, flex=layout.flex) if layout.compiled else None
        warm = Warm(prepare, len(layout.drafters))
        targets = _target_on_each_device(session)
        for index, device in enumerate(layout.targets):
            source = LocalTarget(targets[device], session.taps)
            line = QueueLine(f"target-{index}", index, layout, self._ways, board)
            board.start(
                line.name,
                partial(target_worker, source, session.rows, torch.device(device), line),
                torch_threads=threads,
            )
        # one after the other, here: on two GPUs, replicas made in their threads at once met an illegal access
        replicas = [make_replica(session.masters, config, torch.device(d), layout.dtype) for d in layout.drafters]
        if layout.lead.type == "cuda":
            for device in set(layout.drafters):
                torch.cuda.synchronize(device)
        for index, (device, replica) in enumerate(zip(layout.drafters, replicas, strict=True)):
            source = LocalTarget(targets[device], session.taps)
            line = QueueLine(f"drafter-{index}", index, layout, self._ways, board)
            work = partial(
                drafter_worker,
                index,
                session.masters,
                replica,
                (source.embedding_VH, source.head_VH),
                config,
                layout,
                line,
                session.injected,
                partial(warm.up, replica),
            )
            board.start(line.name, work, torch_threads=threads)
        if layout.compiled:
            session.reporter.phase("compiling")
            while not warm.done.wait(SLICE_S):
                session.stop.check()
                board.check()
                session.reporter.tick()
            torch.compiler.set_stance("fail_on_recompile")  # a later recompile is an error, not a slow-down

    def feed(self, step: int) -> None:
        for micro in range(self._session.layout.micros):
            self._ways.tasks[self._session.layout.target_of(micro)].put((step, micro))

    def result(self, timeout_s: float) -> Result:
        return self._ways.results.get(timeout=timeout_s)

    def publish(self, step: int) -> None:
        """The masters lie in this process: their new version is all there is to tell."""
        self.board.publish(step)

    def close(self, join_s: float) -> None:
        self.board.close(join_s)

    def show_stacks(self) -> None:
        """A dump of this process shows every worker."""


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


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A thread's line: queues, and the board for everything that waits."""

    name: str
    index: int
    layout: Layout
    ways: Channels
    board: Board

    @property
    def version(self) -> int:
        return self.board.version

    def task(self) -> tuple[int, int]:
        return self.board.take(self.ways.tasks[self.index], f"{self.name} (no task)")

    def give(self, step: int, micro: int, batch: Micro, taps: Tensor) -> None:
        drafter = self.layout.drafter_of(micro)
        there = torch.device(self.layout.drafters[drafter])
        ready = Features(batch.to(there), taps.to(there, self.layout.dtype))
        self.board.put(self.ways.features[self.index][drafter], ready, f"{self.name} -> drafter-{drafter}")

    def features(self, step: int, micro: int) -> Features:
        way = self.ways.features[self.layout.target_of(micro)][self.index]
        return self.board.take(way, f"{self.name} (no features)")

    def wait_version(self, version: int) -> None:
        self.board.wait_version(version, self.name)

    def give_result(self, step: int, micro: int, sums: MicroGrads) -> None:
        self.ways.results.put(Result(step, micro, sums))

    def moved(self, step: int) -> None:
        self.board.moved(self.name, step)


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

    def up(self, replica: Drafter) -> Forward | None:
        if self._prepare is None:
            return None
        fx_guard.worker_init()
        run: Forward = torch.compile(replica, dynamic=False)
        with self._lock:
            self._prepare(replica, run)
            self._left -= 1
            if self._left == 0:
                self.done.set()
        return run


def _target_on_each_device(session: Session) -> dict[str, Target]:
    """The same module where it already is, copies elsewhere (embedding and head are needed on every device)."""
    home = str(session.target.lm_head.weight.device)
    found = {home: session.target}
    for device in (*session.layout.targets, *session.layout.drafters):
        if device not in found:
            copy = Target(session.config.target)
            copy.load_state_dict(session.target.state_dict())
            found[device] = frozen(copy.to(device))
    return found
