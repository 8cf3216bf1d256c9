"""What the training loop knows of its workers, and worker threads with what they know of it.

Every wait is bounded and looks up between slices: a worker that died must not leave the others waiting.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from dflash_trainer import log
from dflash_trainer.exits import ClosedError, StalledError, WorkerFailedError, WorkerLostError, code_of
from dflash_trainer.progress import Worker
from dflash_trainer.workers import Result

SLICE_S = 0.25
GRACE_S = 4.0  # the loop has this long to end the process in order before the failed worker ends it
Item = TypeVar("Item")


class Pool(Protocol):
    """All workers of an attempt, as the training loop sees them."""

    board: Board

    def launch(self) -> None:
        """Begin what takes its time; the loop may go on with something else."""
        ...

    def start(self) -> None:
        """Return when every worker is ready for its first step."""
        ...

    def feed(self, step: int) -> None:
        """Targets may work up to this step."""
        ...

    def result(self, timeout_s: float) -> Result:
        """Some micro-batch's; its gradients are valid until the next call.

        Raises:
            queue.Empty: none within the time.
        """
        ...

    def publish(self, step: int) -> None:
        """The masters hold the parameters behind this step: workers may go on."""
        ...

    def close(self, join_s: float) -> None:
        """The run is over for every worker."""
        ...

    def show_stacks(self) -> None:
        """Let those workers that a dump of this process does not show write their stacks too."""
        ...


@dataclass(slots=True)
class _State:
    device: str
    step: int = 0
    alive: bool = True
    finished: bool = False


class Board:
    """Shared by the loop and its workers; everything behind one condition.

    version: the step whose parameters are published. fatal: a worker's exception ends the process
    (False keeps the old behaviour, where it ends the worker alone).
    """

    def __init__(self, devices: dict[str, str], *, version: int, limit_s: float, fatal: bool = True) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._states = {name: _State(device, step=version) for name, device in devices.items()}
        self._threads: dict[str, threading.Thread] = {}
        self._failure: tuple[str, BaseException] | None = None
        self._closed = False
        self.version = version
        self.limit_s = limit_s
        self.fatal = fatal
        self.moved_at = time.monotonic()

    def start(self, name: str, work: Callable[[], None], *, torch_threads: int) -> None:
        thread = threading.Thread(target=self._run, args=(name, work, torch_threads), name=name, daemon=True)
        self._threads[name] = thread
        thread.start()

    def moved(self, name: str, step: int) -> None:
        """A worker has finished its part of a step."""
        with self._changed:
            self._states[name].step = step
            self.moved_at = time.monotonic()
            self._changed.notify_all()

    def publish(self, version: int) -> None:
        with self._changed:
            self.version = version
            self.moved_at = time.monotonic()
            self._changed.notify_all()

    def wait_version(self, version: int, who: str) -> None:
        """The barrier before a step: until its parameters are published.

        Raises:
            ClosedError: the run is over. StalledError: the limit has passed.
        """
        began = time.monotonic()
        with self._changed:
            while self.version < version:
                self._look_up(began, f"{who} waits for the parameters of step {version}")
                self._changed.wait(SLICE_S)

    def wait_moved(self, seconds: float) -> None:
        """Return when some worker moved or failed, at the latest after `seconds`."""
        with self._changed:
            self._changed.wait(seconds)

    def take(self, source: queue.Queue[Item], who: str) -> Item:
        began = time.monotonic()
        while True:
            try:
                return source.get(timeout=SLICE_S)
            except queue.Empty:
                self._look_up(began, f"{who} is starving")

    def put(self, target: queue.Queue[Item], item: Item, who: str) -> None:
        began = time.monotonic()
        while True:
            try:
                return target.put(item, timeout=SLICE_S)
            except queue.Full:
                self._look_up(began, f"{who} finds no free place")

    def check(self) -> None:
        """Raise a worker's exception in the loop, or name one that ended without a word."""
        with self._changed:
            if self._failure is not None:
                name, error = self._failure
                raise error if isinstance(error, WorkerLostError) else WorkerFailedError(name, error)
            for name, thread in self._threads.items():
                if not thread.is_alive() and not self._states[name].finished:
                    self._states[name].alive = False
                    raise WorkerLostError(f"{name} ended without finishing and without an exception")

    def workers(self) -> tuple[Worker, ...]:
        with self._changed:
            return tuple(Worker(name, state.device, state.step, state.alive) for name, state in self._states.items())

    def all_finished(self) -> bool:
        with self._changed:
            return all(state.finished for state in self._states.values())

    def living(self) -> list[str]:
        with self._changed:
            return [name for name, state in self._states.items() if state.alive]

    def behind(self) -> str:
        """Who has come least far: where the others wait, the one they wait for."""
        with self._changed:
            least = min(state.step for state in self._states.values())
            names = [name for name, state in self._states.items() if state.step == least]
        return f"behind: {', '.join(names)} at step {least}"

    def close(self, join_s: float) -> None:
        """End the waits of all workers and give them a moment; one that hangs is left behind."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        until = time.monotonic() + join_s
        for thread in self._threads.values():
            thread.join(max(0.0, until - time.monotonic()))

    def _look_up(self, began: float, what: str) -> None:
        if self._closed or (self.fatal and self._failure is not None):
            raise ClosedError
        if self.limit_s and time.monotonic() - began > self.limit_s:
            raise StalledError(f"{what} for {self.limit_s:.0f} s; {self.behind()}")

    def _run(self, name: str, work: Callable[[], None], torch_threads: int) -> None:
        torch.set_num_threads(torch_threads)  # OpenMP keeps this per thread
        if self._states[name].device.startswith("cuda"):
            torch.cuda.set_device(self._states[name].device)  # the current device is a thread's own
        try:
            work()
        except ClosedError:
            self.end(name, finished=True)
        except SystemExit:
            self.end(name, finished=False)
        except BaseException as error:  # noqa: BLE001  # printed, recorded, and the end of the process
            log.worker_exception(name, error)
            self.end(name, finished=False, failure=error)
            if self.fatal and not self._closed:
                self.end_process_unless_the_loop_does(error)
        else:
            self.end(name, finished=True)

    def end(self, name: str, *, finished: bool, failure: BaseException | None = None) -> None:
        """A worker has ended; the first failure is the run's."""
        with self._changed:
            self._states[name].alive = finished
            self._states[name].finished = finished
            if self._failure is None and failure is not None:
                self._failure = (name, failure)
            self._changed.notify_all()

    def end_process_unless_the_loop_does(self, error: BaseException) -> None:
        """After a failure, from another thread than the loop's: the loop may be in a save or wait for ever."""
        until = time.monotonic() + GRACE_S
        with self._changed:
            while not self._closed and time.monotonic() < until:
                self._changed.wait(SLICE_S)
            if self._closed:
                return
        log.error("exit", f"code={code_of(error)} reason=the training loop did not end within {GRACE_S:.0f} s")
        log.flush()
        os._exit(code_of(error))
