"""Workers as processes, one each: this is the loop's side, `worker_process.py` and `worker_line.py` are theirs.

    loop --version, feed, taken, close-->  worker  --moved, ready, result, finished, failed--> loop
    target <--(step, micro) / free--> drafter        one way for each pair, past the loop

Small messages travel through socket pairs. Taps, gradients and parameters lie in one shared `Arena`, in a fixed
number of places a worker: no free place, and the writer waits. Who uses which place when follows from the order
of the micro-batches alone, so the same numbers are added in the same order as with threads.

A process is started by exec, never by fork, from the loop's thread, whose end is each worker's end (the kernel
sees to it). A worker that ends too early is seen as the end of its socket. Workers leave SIGTERM and SIGINT to
the loop: asked to stop as a group, they must not be gone before it has saved.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from dflash_trainer import config_load, exits, log, signals
from dflash_trainer.drafting import MicroGrads
from dflash_trainer.exits import RemoteError, WorkerLostError
from dflash_trainer.messages import pair, receive, send
from dflash_trainer.pool import SLICE_S, Board
from dflash_trainer.session import Session
from dflash_trainer.shared import GRAD_PLACES, Arena, tensors_of
from dflash_trainer.workers import Result

LEAVE_S = 0.5  # what a worker that waits may take to end by itself
KILLED_S = 3.0  # what the kernel may take to end one that was killed
APART_S = 0.01  # between two stack dumps into one file: each is written in many pieces
_OURS = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}


@dataclass(slots=True)
class _Link:
    """A worker process and our end of the way to it."""

    name: str
    process: subprocess.Popen[bytes]
    way: Connection
    listening: bool = True
    told_end: bool = False  # it said that it has finished or failed


class ProcessPool:
    """The worker processes of one attempt. A `pool.Pool`."""

    def __init__(self, session: Session) -> None:
        layout = session.layout
        self._session = session
        self.board = Board(layout.devices, version=session.step, limit_s=session.config.limits.barrier_s)
        self._arena = Arena.create(tensors_of(session))
        self._links: dict[str, _Link] = {}
        self._waking, self._wake = os.pipe()
        self._warming = len(layout.devices)
        self._warm = threading.Event()
        self._results: list[queue.SimpleQueue[list[Any]]] = [queue.SimpleQueue() for _ in layout.drafters]
        self._places = [
            [list(self._arena.below(f"grads.{drafter}.{place}.").values()) for place in range(GRAD_PLACES)]
            for drafter in range(len(layout.drafters))
        ]
        self._taken = [0] * len(layout.drafters)
        self._next = (session.step + 1, 0)
        self._read: _Link | None = None  # the drafter whose gradients the loop holds
        self._over = False

    def launch(self) -> None:
        """Start every process; they import torch while the loop goes on."""
        session, layout = self._session, self._session.layout
        with torch.no_grad():
            for name, weight in session.target.state_dict().items():
                self._arena[f"target.{name}"].copy_(weight)
        self._arena["corpus.tokens"].copy_(session.corpus.tokens)
        self._write_masters()
        if layout.lead.type == "cuda":
            self._arena.pin()
        os.set_blocking(self._wake, False)
        signals.on_dump(self._wake)
        pairs = [[pair() for _ in layout.drafters] for _ in layout.targets]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)  # a worker unblocks them when it can take them
        try:
            for index in range(len(layout.targets)):
                self._spawn("target", index, [ours for ours, _ in pairs[index]])
            for index in range(len(layout.drafters)):
                self._spawn("drafter", index, [row[index][1] for row in pairs])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for row in pairs:
            for both in row:
                for end in both:
                    end.close()  # only the workers hold them: the end of one is then seen by the other
        log.info("workers", " ".join(f"{link.name}={link.process.pid}" for link in self._links.values()))
        threading.Thread(target=self._listen, name="workers", daemon=True).start()

    def start(self) -> None:
        """Wait until each worker has compiled what it needs, all at the same time."""
        session = self._session
        if session.layout.compiled:
            session.reporter.phase("compiling")
        while not self._warm.wait(SLICE_S):
            session.stop.check()
            self.board.check()
            session.reporter.tick()

    def feed(self, step: int) -> None:
        targets = [self._links[f"target-{index}"] for index in range(len(self._session.layout.targets))]
        _tell(targets, "feed", step)

    def result(self, timeout_s: float) -> Result:
        """The next micro-batch's in order; that of the call before is handed back to its worker."""
        if self._read is not None:
            _tell([self._read], "taken")
            self._read = None
        step, micro = self._next
        drafter = self._session.layout.drafter_of(micro)
        got = self._results[drafter].get(timeout=timeout_s)
        assert got[:2] == [step, micro], f"drafter-{drafter} gave {got[:2]}, step {step} micro-batch {micro} is next"
        numerator, denominator, tokens, hits, counts = got[2:]
        grads = self._places[drafter][self._taken[drafter] % GRAD_PLACES]
        self._taken[drafter] += 1
        self._read = self._links[f"drafter-{drafter}"]
        self._next = (step, micro + 1) if micro + 1 < self._session.layout.micros else (step + 1, 0)
        sums = MicroGrads(grads, numerator, denominator, torch.tensor(hits), torch.tensor(counts), tokens)
        return Result(step, micro, sums)

    def publish(self, step: int) -> None:
        """Every worker has pulled the version before: it has given a result of this step."""
        self._write_masters()
        self.board.publish(step)
        _tell(self._links.values(), "version", step)

    def close(self, join_s: float) -> None:
        """Tell all to leave, end those that do not, and see them gone."""
        self.board.close(0.0)
        if self._over:
            return
        self._over = True
        _tell(self._links.values(), "close")
        until = time.monotonic() + max(join_s, LEAVE_S)
        for link in self._links.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                link.process.wait(max(0.0, until - time.monotonic()))
        stay = [link for link in self._links.values() if link.process.poll() is None]
        for link in stay:
            link.process.kill()
        until = time.monotonic() + KILLED_S
        for link in stay:
            try:
                link.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("workers", f"{link.name}={link.process.pid} does not end after SIGKILL")

    def show_stacks(self) -> None:
        """One after the other, behind our own: a dump of this process does not show them."""
        for link in self._links.values():
            if link.process.poll() is None:
                with contextlib.suppress(OSError):  # a full disk is no reason to end the run
                    with (self._session.attempt.folder / "stacks.txt").open("a", encoding="utf-8") as out:
                        out.write(f"{link.name} (pid {link.process.pid}):\n")
                link.process.send_signal(signal.SIGUSR1)
                time.sleep(APART_S)

    @torch.no_grad()
    def _write_masters(self) -> None:
        for name, weight in self._session.masters.named_parameters():
            self._arena[f"masters.{name}"].copy_(weight)

    def _spawn(self, role: str, index: int, pairs: list[Connection]) -> None:
        session, name = self._session, f"{role}-{index}"
        ours, theirs = pair()
        stacks = session.attempt.folder / "stacks.txt"
        argv = [sys.executable, "-m", "dflash_trainer.worker_process"]
        argv += [name, str(os.getpid()), str(theirs.fileno()), str(stacks)]
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        fds = [theirs.fileno(), self._arena.fd, *(end.fileno() for end in pairs)]
        process = subprocess.Popen(argv, env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.DEVNULL, pass_fds=fds)
        theirs.close()
        self._links[name] = _Link(name, process, ours)
        _tell([self._links[name]], self._spec(role, index, [end.fileno() for end in pairs]))

    def _spec(self, role: str, index: int, pairs: list[int]) -> dict[str, object]:
        session, layout = self._session, self._session.layout
        return {
            "role": role,
            "index": index,
            "config": config_load.flat(session.config),
            "layout": {**asdict(layout), "dtype": str(layout.dtype).removeprefix("torch.")},
            "taps": session.taps,
            "version": session.step,
            "prompt_tokens": session.corpus.prompt_tokens,
            "faults": [[fault.kind, fault.step] for fault in session.injected],
            "arena": [self._arena.fd, self._arena.plan],
            "pairs": pairs,
        }

    def _listen(self) -> None:
        """The listener's thread: until the run is over, or a worker has failed."""
        try:
            failure = self._hear_all()
        except BaseException as error:  # noqa: BLE001  # deaf, the loop would wait for ever
            log.worker_exception("workers", error)
            log.flush()
            os._exit(exits.code_of(error))
        if failure is not None:
            self.board.end_process_unless_the_loop_does(failure)

    def _hear_all(self) -> BaseException | None:
        while not self._over:
            ways: dict[Any, _Link] = {link.way: link for link in self._links.values() if link.listening}
            for ready in wait([*ways, self._waking], SLICE_S):
                if ready == self._waking:
                    if signal.SIGUSR1 in os.read(self._waking, 64):
                        self.show_stacks()
                    continue
                failure = self._hear(ways[ready])
                if failure is not None and not self._over:
                    return failure
            for link in ways.values():
                # a process that it left behind may hold its end of the way open
                if link.process.poll() is not None and link.listening and not link.way.poll():
                    failure = self._gone(link)
                    if failure is not None:
                        return failure
        return None

    def _hear(self, link: _Link) -> BaseException | None:
        """One message, or the end of the process behind it. Returns what the run must end with."""
        try:
            kind, *rest = receive(link.way)
        except (EOFError, OSError):
            return self._gone(link)
        if kind == "result":
            self._results[int(link.name.removeprefix("drafter-"))].put(rest)
        elif kind == "moved":
            self.board.moved(link.name, *rest)
        elif kind == "ready":
            self._warming -= 1
            if self._warming == 0:
                self._warm.set()
        else:
            link.told_end = True
            if kind == "finished":
                self.board.end(link.name, finished=True)
                return None
            words, code, text = rest
            log.process_exception(link.name, text)
            error = RemoteError(words, code)
            self.board.end(link.name, finished=False, failure=error)
            return error
        return None

    def _gone(self, link: _Link) -> BaseException | None:
        link.listening = False
        if link.told_end or self._over:
            return None
        try:
            code: int | None = link.process.wait(KILLED_S)
        except subprocess.TimeoutExpired:
            code = None
        error = WorkerLostError(exits.how_it_ended(link.name, link.process.pid, code))
        log.error("workers", str(error))  # now: the loop may not come to say it
        self.board.end(link.name, finished=False, failure=error)
        return error


def _tell(links: Iterable[_Link], *message: object) -> None:
    """A worker that is gone is the listener's business."""
    for link in links:
        with contextlib.suppress(OSError):
            send(link.way, *message)
