"""Ending a process set: seal, SIGTERM, grace, SIGKILL, look again until nobody is left. Driven once a tick."""

from __future__ import annotations

import signal
from typing import Callable, Dict, Iterable, Optional, Protocol, Set, Tuple, Union

from dflash_supervise.agent.proc import Key, signal_process
from dflash_supervise.core.facts import Missing, ProcessesReading, ProcessFact, StopReading

KILL_ROUNDS = 5  # looks in one tick, for what is born while we kill


class Box(Protocol):
    """The evidence that is kept before the first signal (``blackbox.Sealing``)."""

    def start(self, now_s: float) -> None: ...

    def sealed(self, now_s: float) -> bool: ...


class Stopper:
    """One stop of one attempt's set, or of leftovers. It holds only what it has sent; who is left is looked at anew."""

    def __init__(
        self,
        attempt: int,
        asked_at_s: float,
        grace_s: float,
        unkillable_s: float,
        *,
        box: Optional[Box] = None,
        rescan: Optional[Callable[[], ProcessesReading]] = None,
        proc_root: str = "/proc",
    ) -> None:
        """box: sealed before the first signal. rescan: a fresh look inside a tick, while killing."""
        self.attempt = attempt
        self.asked_at_s = asked_at_s
        self.finished = False  # as of the last tick: sealed, and nobody was alive
        self._grace_s = grace_s
        self._unkillable_s = unkillable_s
        self._box = box
        self._rescan = rescan
        self._proc_root = proc_root
        self._sent: Dict[int, Set[Key]] = {signal.SIGTERM: set(), signal.SIGKILL: set()}
        self._signals = 0
        self._term_at_s: Optional[float] = None
        self._kill_at_s: Optional[float] = None

    def tick(self, now_s: float, processes: Union[ProcessesReading, Missing]) -> StopReading:
        """Do what is due now and return at once. A process table that could not be read gets no signal."""
        if self._box is not None:
            self._box.start(now_s)
            if not self._box.sealed(now_s):
                return self._reading(now_s, ())
        if isinstance(processes, Missing):
            self.finished = False
            return self._reading(now_s, ())
        alive = processes.alive
        self.finished = not alive
        if alive:
            self._term_at_s = now_s if self._term_at_s is None else self._term_at_s
            if now_s - self._term_at_s < self._grace_s:
                self._terminate(now_s - self._term_at_s, processes)
            else:
                self._kill_at_s = now_s if self._kill_at_s is None else self._kill_at_s
                alive = self._kill(processes)
        return self._reading(now_s, alive)

    def _terminate(self, asked_for_s: float, processes: ProcessesReading) -> None:
        """First the main process alone, so that it can end its helpers in order and save; then everybody."""
        main = [p for p in processes.alive if p.via == "main"]
        early = asked_for_s < self._grace_s / 2
        self._send(signal.SIGTERM, main if main and early else processes.alive)

    def _kill(self, processes: ProcessesReading) -> Tuple[ProcessFact, ...]:
        for _ in range(KILL_ROUNDS):
            before = self._signals
            self._send(signal.SIGKILL, processes.alive)
            if self._rescan is None or self._signals == before:
                break
            processes = self._rescan()
        self.finished = not processes.alive
        return processes.alive

    def _send(self, number: int, targets: Iterable[ProcessFact]) -> None:
        sent = self._sent[number]
        for target in targets:
            key = (target.pid, target.start_ticks)
            if key in sent:
                continue
            if number == signal.SIGKILL:
                signal_process(*key, signal.SIGCONT, self._proc_root)
            if signal_process(*key, number, self._proc_root):
                sent.add(key)
                self._signals += 1

    def _reading(self, now_s: float, alive: Tuple[ProcessFact, ...]) -> StopReading:
        over = self._kill_at_s is not None and now_s - self._kill_at_s >= self._unkillable_s
        return StopReading(
            attempt=self.attempt,
            asked_at_s=self.asked_at_s,
            signals_sent=self._signals,
            killed=bool(self._sent[signal.SIGKILL]),
            unkillable=tuple(alive) if over else (),
        )


def send_continue(processes: Union[ProcessesReading, Missing], proc_root: str = "/proc") -> int:
    """One SIGCONT to each member in state T (stopped by job control, not traced). Returns how many got it."""
    if isinstance(processes, Missing):
        return 0
    stopped = [p for p in processes.members if p.state == "T"]
    return sum(signal_process(p.pid, p.start_ticks, signal.SIGCONT, proc_root) for p in stopped)
