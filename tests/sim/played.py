"""The played trainer, its process and the played GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dflash_supervise.core.facts import (
    ExitReading,
    GpuReading,
    LogReading,
    ProcessesReading,
    ProcessFact,
    ProgressReading,
    StackSample,
    WorkerFact,
)

GIB = 2**30


@dataclass
class Trainer:
    """The played main process of one attempt."""

    number: int
    launched_at_s: float
    step_s: float = 1.0
    start_s: float = 5.0
    step: int = 0
    steps_total: int = 10_000
    began_at: int = 0
    mode: str = "training"  # training, blocked, spinning, saving, compiling, stopped, worker_dead, busy
    phase: str | None = None  # what progress.json says, where it is not what the mode implies
    state: str = "S"
    wchan: str | None = "futex_wait_queue"
    tracer_pid: int | None = 0
    stack: str = "thread drafter-0: wait (workers.py:12)"
    stack_moves: bool = False
    cpu_s: float = 1.0
    written: int = 0
    log_bytes: int = 200
    log: LogReading = field(default_factory=lambda: LogReading(exists=True, size_bytes=200, body_bytes=100))
    exit: ExitReading | None = None
    leftovers: int = 0
    immortal: bool = False  # survives SIGKILL
    checkpoint: int = 0
    dies_on_term_s: float = 1.0
    term_code: int = 143  # how it answers SIGTERM
    asked_at_s: float | None = None
    worker_steps: dict[str, int] = field(default_factory=dict)
    absent: str = ""  # UUID of the GPU whose rank never comes while the others spin
    dead: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)  # alive, and busy with something else
    stacks: list[StackSample] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.exit is None

    def processes(self, socket_bytes: int | None) -> ProcessesReading:
        members = []
        if self.alive:
            main = process(100 + self.number, "main", self.cpu_s, self.written)
            state = "T" if self.mode == "stopped" else self.state
            members.append(replace(main, state=state, wchan=self.wchan, tracer_pid=self.tracer_pid))
        members += [process(500 + index, "tree") for index in range(self.leftovers)]
        compilers = 2 if self.alive and self.mode == "compiling" else 0
        return ProcessesReading(tuple(members), self.alive, True, compilers, socket_bytes)

    def progress(self, now_s: float) -> ProgressReading:
        started = now_s - self.launched_at_s >= self.start_s
        implied = self.mode if self.mode in ("saving", "compiling") else "training" if started else "loading"
        workers = tuple(
            WorkerFact(name, "cpu", step, name not in self.dead) for name, step in sorted(self.worker_steps.items())
        )
        return ProgressReading(
            self.phase or implied,
            self.step,
            self.steps_total,
            workers=workers,
            checkpoint_step=self.checkpoint or None,
            checkpoint_done=True if self.checkpoint else None,
        )

    def sample(self, now_s: float, apart_s: float) -> None:
        """What SIGUSR1 leaves: equal places while nothing moves."""
        if not self.stacks or now_s - self.stacks[-1].at_s >= apart_s:
            still = self.mode in ("blocked", "spinning") and not self.stack_moves
            self.stacks.append(StackSample(now_s, "same" if still else f"moves-{now_s}", (self.stack,)))


def gpus(count: int = 8) -> list[GpuReading]:
    off = GpuReading("GPU-0", 0, "H200", 0.0, 0.0, 0, 141 * GIB, 78.0, 700.0, holders=())
    return [replace(off, uuid=f"GPU-{index}", index=index) for index in range(count)]


def process(pid: int, via: str, cpu_s: float = 1.0, written: int = 0, state: str = "S") -> ProcessFact:
    return ProcessFact(
        pid, 1, 1, pid, pid, state, "python3", cpu_s, 8, GIB, via, tracer_pid=0, read_bytes=0, write_bytes=written
    )
