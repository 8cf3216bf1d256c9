"""A thread for file work that may hang: whoever submits it decides how long to wait."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable, Deque, Generic, Optional, TypeVar

T = TypeVar("T")


class Job(Generic[T]):
    """One piece of work in a lane."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: Optional[T] = None
        self.error: Optional[OSError] = None
        self.fault: Optional[BaseException] = None

    def run(self) -> None:
        """Do the work, in the lane's thread."""
        try:
            self._result = self._work()
        except OSError as error:
            self.error = error
        except BaseException as fault:  # noqa: BLE001 - raised again where the result is asked for
            self.fault = fault
        finally:
            self._done.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether the work is over, after waiting at most ``timeout_s``."""
        return self._done.wait(timeout_s)

    def result(self) -> T:
        """What the work returned.

        Raises:
            OSError: the file system refused. Any other exception is a fault of ours, raised as it was.
        """
        assert self._done.is_set()
        if self.fault is not None:
            raise self.fault
        if self.error is not None:
            raise self.error
        result: Any = self._result
        return result  # type: ignore[no-any-return]  # None is a result when T allows it

    @property
    def done(self) -> bool:
        return self._done.is_set()


class Lane:
    """Work in the order of its submission, in one daemon thread: a hang here stops nobody else."""

    def __init__(self, name: str) -> None:
        self._jobs: Deque[Job[Any]] = deque()
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> Job[T]:
        """Queue the work."""
        job: Job[T] = Job(work)
        with self._wake:
            self._jobs.append(job)
            self._wake.notify()
        return job

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return len(self._jobs)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._jobs:
                    self._wake.wait()
                job = self._jobs.popleft()
            job.run()
