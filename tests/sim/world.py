"""A pretend host with a virtual clock: the brain is real, the trainer, the keeper and the GPUs are played.

One ``World`` is one run. ``tick()`` builds the observation that a real agent would see, asks ``decide`` and plays the
hands. Faults are methods that change what is; nothing sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dflash_supervise import wire
from dflash_supervise.core.actions import Action, Continue, EndStale, Launch, SampleStacks, Stop
from dflash_supervise.core.decide import Decision, Snapshot, decide
from dflash_supervise.core.facts import (
    AttemptFact,
    ExitReading,
    Goal,
    GpuReading,
    GpusReading,
    HostReading,
    Missing,
    Observation,
    ProcessesReading,
    ProofReading,
    StacksReading,
    StopReading,
    Traceback,
)
from dflash_supervise.core.memory import Memory, new_agent
from dflash_supervise.core.policy import Policy
from dflash_supervise.core.verdicts import Verdict
from tests.sim.played import GIB, Trainer, gpus, process

__all__ = ["GIB", "Trainer", "World", "gpus", "process", "trained"]

BUSY = (95.0, 600.0)  # %, W


@dataclass
class World:
    policy: Policy = field(default_factory=Policy)
    kind: str = "bundled"
    goal: Goal = field(default_factory=Goal)
    now_s: float = 1000.0
    memory: Memory = field(default_factory=Memory)
    trainers: list[Trainer] = field(default_factory=list)
    gpus: list[GpuReading] = field(default_factory=list)
    boot_id: str = "boot-1"
    proof_free: bool | None = True
    foreign: bool = False
    stale_ours: int = 0
    stale_immortal: bool = False
    step_s: float = 1.0
    checkpoint_every: int = 20
    verdicts: list[tuple[float, Verdict, str, bool]] = field(default_factory=list)
    actions: list[tuple[float, Action]] = field(default_factory=list)
    decision: Decision | None = None
    hidden: set[str] = field(default_factory=set)  # readings that are missing
    socket_bytes: int | None = 0
    driver_stuck_s: float | None = None
    socket_rate: int = 0  # bytes a second
    disk_free_bytes: int | None = 100 * GIB
    launches_fail: bool = False  # nothing comes of a launch
    keepers_die: bool = False  # an intent is there, and no trainer ever
    deaf: bool = False  # a stop is written down and not begun yet
    forgotten: bool = False  # the run directory knows of no attempt any more
    proof_silent: bool = False
    io_told: bool = True  # /proc/PID/io can be read
    most_alive: int = 0

    @property
    def now_attempt(self) -> Trainer | None:
        return self.trainers[-1] if self.trainers else None

    @property
    def trainer(self) -> Trainer:
        return self.trainers[-1]

    def run(self, seconds: float, *, every_s: float = 1.0) -> World:
        """Let time pass in ticks; up to 5 s apart they open no new window."""
        for _ in range(round(seconds / every_s)):
            self.tick(every_s)
        return self

    def tick(self, after_s: float = 1.0) -> Decision:
        self.now_s += after_s
        if self.socket_bytes is not None:
            self.socket_bytes += round(self.socket_rate * after_s)
        self._play()
        decision = decide(Snapshot(self.goal, self.policy, self.observe(), self.memory, self.kind))
        if decision.incidents or decision.ended or decision.actions:
            stored = wire.from_json(Memory, wire.to_json(decision.memory))
            assert stored == decision.memory, "memory must survive brain.json"
        self.memory, self.decision = decision.memory, decision
        said = (decision.assessment.verdict, decision.assessment.cause, decision.assessment.suspected)
        if not self.verdicts or self.verdicts[-1][1:] != said:
            self.verdicts.append((self.now_s, *said))
        for action in decision.actions:
            self._do(action)
        self.most_alive = max(self.most_alive, sum(trainer.alive for trainer in self.trainers))
        return decision

    # ---- what the world is like

    def observe(self) -> Observation:
        trainer = self.now_attempt
        number = trainer.number if trainer and not self.forgotten else 0
        nobody = ProcessesReading((), None, None, socket_bytes=0)
        seen = Observation(
            at_s=self.now_s,
            attempt=AttemptFact(number, trainer.launched_at_s if trainer else None, 100 + number, 1),
            processes=trainer.processes(self.socket_bytes) if trainer else nobody,
            progress=trainer.progress(self.now_s) if trainer else Missing("no attempt yet"),
            log=trainer.log if trainer else Missing("no attempt yet"),
            gpus=GpusReading(
                tuple(self._gpu(gpu, trainer) for gpu in self.gpus),
                None if self.gpus else "no GPU here",
                self.driver_stuck_s,
            ),
            host=HostReading(self.boot_id, "machine", self.disk_free_bytes, 10**6, 8 * GIB),
            exit=trainer.exit if trainer else None,
            proof=None if self.proof_silent else self._proof(trainer),
            stop=self._stop(trainer),
            stacks=StacksReading(tuple(trainer.stacks)) if trainer and trainer.stacks else Missing("none taken"),
        )
        if not self.io_told and isinstance(seen.processes, ProcessesReading):
            members = tuple(replace(one, read_bytes=None, write_bytes=None) for one in seen.processes.members)
            seen = replace(seen, processes=replace(seen.processes, members=members))
        for name in self.hidden:
            seen = replace(seen, **{name: Missing("hidden by the test")})
        return seen

    def _gpu(self, gpu: GpuReading, trainer: Trainer | None) -> GpuReading:
        if trainer is None or not trainer.alive or gpu.error:
            return gpu
        util, power = {"training": BUSY, "generating": BUSY, "spinning": (100.0, 125.0)}.get(trainer.mode, (0.0, 124.0))
        if gpu.uuid == trainer.absent or (trainer.mode == "training" and not self._steps(trainer)):
            util, power = 0.0, 124.0
        return replace(gpu, util_pct=util, power_w=power, mem_used_bytes=40 * GIB)

    def _proof(self, trainer: Trainer | None) -> ProofReading:
        empty = trainer is None or (not trainer.alive and trainer.leftovers == 0)
        stale = tuple(process(900 + index, "token") for index in range(self.stale_ours))
        free = None if self.proof_free is None else bool(self.proof_free and empty and not stale and not self.foreign)
        blockers = ("GPU 3 is at 100 % with 0 MiB and no process to see",) if self.proof_free is False else ()
        return ProofReading(empty, free, blockers, stale, self.foreign, self.proof_free is False)

    def _stop(self, trainer: Trainer | None) -> StopReading | None:
        if trainer is None or trainer.asked_at_s is None:
            return None
        over_s = self.now_s - trainer.asked_at_s - self.policy.grace_s
        left = trainer.processes(0).alive if trainer.immortal and over_s >= self.policy.unkillable_s else ()
        return StopReading(trainer.number, trainer.asked_at_s, 1, over_s >= 0, left)

    # ---- what happens by itself

    def _steps(self, trainer: Trainer) -> bool:
        return self.now_s - trainer.launched_at_s >= trainer.start_s

    def _play(self) -> None:
        trainer = self.now_attempt
        if trainer is None or not trainer.alive:
            return
        if (
            not trainer.immortal
            and trainer.asked_at_s is not None
            and self.now_s - trainer.asked_at_s >= trainer.dies_on_term_s
        ):
            trainer.exit = ExitReading(
                trainer.term_code if trainer.mode == "training" else None, None if trainer.mode == "training" else 9
            )
            trainer.leftovers = 0
            return
        if trainer.mode in ("training", "worker_dead"):
            trainer.cpu_s += 0.8
            if self._steps(trainer):
                done = int((self.now_s - trainer.launched_at_s - trainer.start_s) / trainer.step_s)
                self._advance(trainer, trainer.began_at + done)
        elif trainer.mode in ("compiling", "busy"):
            trainer.cpu_s += 1.0
        elif trainer.mode == "saving":
            trainer.written += 100 * 2**20

    def _advance(self, trainer: Trainer, step: int) -> None:
        trainer.step = max(trainer.step, step)
        for name in trainer.worker_steps:
            if name not in trainer.dead | trainer.slow:
                trainer.worker_steps[name] = trainer.step
        trainer.checkpoint = max(trainer.checkpoint, trainer.step // self.checkpoint_every * self.checkpoint_every)
        trainer.log_bytes += 50
        trainer.log = replace(
            trainer.log, size_bytes=trainer.log_bytes, body_bytes=trainer.log_bytes - 100, step=trainer.step
        )

    # ---- faults

    def die(
        self, code: int | None = None, signal: int | None = None, exc: str = "", message: str = "", **more: object
    ) -> None:
        trainer = self.now_attempt
        assert trainer is not None
        trainer.exit = ExitReading(code, signal, ran_s=self.now_s - trainer.launched_at_s, **more)  # type: ignore[arg-type]
        if exc:
            line = f"{exc}: {message}" if message else exc
            found = Traceback(exc, message, line, 40, "train.py:10")
            trainer.log = replace(
                trainer.log, tracebacks=(found,), traceback_is_last=True, body_bytes=500, last_line=line
            )

    # ---- hands

    def _do(self, action: Action) -> None:
        self.actions.append((self.now_s, action))
        trainer = self.now_attempt
        if isinstance(action, Launch):
            if self.launches_fail:
                return
            assert trainer is None or not trainer.alive, "two attempts alive"
            assert self.proof_free and not self.foreign, "launched without proof"
            assert action.attempt == (trainer.number if trainer else 0) + 1
            began = trainer.checkpoint if trainer else 0
            new = Trainer(action.attempt, self.now_s, step=began, began_at=began, checkpoint=began)
            if self.keepers_die:
                new.exit = ExitReading(None, None, exec_error="the launch was interrupted before the trainer ran")
            self.trainers.append(replace(new, step_s=self.step_s))
        elif isinstance(action, Stop) and self.deaf:
            return
        elif isinstance(action, Stop):
            assert trainer is not None and trainer.number == action.attempt, "a stop must name the attempt it means"
            trainer.leftovers = trainer.leftovers if trainer.immortal else 0
            if trainer.asked_at_s is None:
                trainer.asked_at_s = self.now_s
        elif isinstance(action, Continue):
            assert trainer is not None and trainer.mode == "stopped"
        elif isinstance(action, EndStale):
            self.stale_ours = self.stale_ours if self.stale_immortal else 0
        elif isinstance(action, SampleStacks):
            assert trainer is not None
            trainer.sample(self.now_s, self.policy.stacks_apart_s)

    def restart_agent(self) -> None:
        """kill -9 of the agent: memory comes back from brain.json, timings do not count any more."""
        self.memory = new_agent(wire.from_json(Memory, wire.to_json(self.memory)), self.now_s)

    # ---- looking back

    def said(self, verdict: Verdict) -> bool:
        return any(entry[1] is verdict for entry in self.verdicts)

    def said_cause(self, cause: str, verdict: Verdict) -> bool:
        return any(entry[1] is verdict and entry[2] == cause for entry in self.verdicts)

    def kinds(self) -> list[str]:
        names = [type(action).__name__ for _, action in self.actions]
        return [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]

    def signals(self) -> list[Action]:
        return [action for _, action in self.actions if isinstance(action, (Stop, Continue, EndStale))]

    def pages(self) -> list[str]:
        return [one.cause for one in self.memory.incidents if one.severity == "page" and one.state == "open"]

    def launched(self) -> list[float]:
        """When each attempt was first asked for."""
        first: dict[int, float] = {}
        for at_s, action in self.actions:
            if isinstance(action, Launch):
                first.setdefault(action.attempt, at_s)
        return list(first.values())

    @property
    def last(self) -> Decision:
        assert self.decision is not None
        return self.decision

    @property
    def verdict(self) -> Verdict:
        return self.last.assessment.verdict


def trained(seconds: float = 60, **more: object) -> World:
    """A world in which the first attempt has trained for a while."""
    return World(**more).run(seconds)  # type: ignore[arg-type]
