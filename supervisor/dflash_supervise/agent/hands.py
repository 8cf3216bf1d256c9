"""Does what the brain wants. Actions are repeated every tick while they are wanted; each is begun once.

A stop needs no workspace: it is written down when that is possible and done in any case. A launch is the opposite.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Set, Tuple, Union

from dflash_supervise.agent import launch as launching
from dflash_supervise.agent.blackbox import BoxInputs, Sealing
from dflash_supervise.agent.lane import Job, Lane
from dflash_supervise.agent.observe import INTERRUPTED, Attempt, is_interrupted
from dflash_supervise.agent.procs import ProcessSet
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.agent.stacks import Sampler
from dflash_supervise.agent.start import agent_command
from dflash_supervise.agent.stop import Stopper, send_continue
from dflash_supervise.core.actions import Action, Continue, EndStale, Launch, SampleStacks, Stop
from dflash_supervise.core.facts import (
    Missing,
    Observation,
    ProcessesReading,
    StacksReading,
    StopReading,
)
from dflash_supervise.core.policy import Policy

NO_SAMPLE = Missing("no stack sample was taken")


@dataclass(frozen=True)
class Body:
    """What an action may touch in this tick: one attempt of one run, and the readings it rests on."""

    now_s: float
    attempt: Attempt
    processes: ProcessSet
    seen: Observation
    policy: Policy
    gpus: Optional[Tuple[str, ...]]  # what a launch gives to the trainer and locks
    output_dir: Optional[str]
    log_path: str
    no_launch: str  # why nothing may be launched now; empty when it may
    recent: Tuple[str, ...]  # the last observations as JSON, for the black box


@dataclass(frozen=True)
class Outcome:
    """What came of an action."""

    type: str
    attempt: int
    ok: bool
    detail: str
    proof: Dict[str, Any]


class Hands:
    """The stops, samples and launches of one run that are under way."""

    def __init__(self, runtime: Runtime, run_dir: str) -> None:
        self._runtime = runtime
        self._run_dir = run_dir
        self._run_id = os.path.basename(run_dir)
        self._stops: Dict[int, Stopper] = {}
        self._stop_told: Set[int] = set()
        self._stale: Optional[Stopper] = None
        self._sampler: Optional[Tuple[int, Sampler]] = None
        self._sampled_at_s: Optional[float] = None
        self._lane = Lane("launch")
        self._launch: Optional[Tuple[Launch, Job[int]]] = None
        self._closing: Optional[Job[bool]] = None
        self._intent_since: Tuple[int, float] = (0, 0.0)
        self._outcomes: List[Outcome] = []

    def begins(self, action: Action, body: Body) -> bool:
        """Whether this action would be begun now, so that it is written down first; False when it is under way."""
        if isinstance(action, Stop):
            return action.attempt not in self._stops and action.attempt == body.attempt.fact.number
        if isinstance(action, EndStale):
            return self._stale is None
        if isinstance(action, SampleStacks):
            last = self._sampled_at_s
            return action.attempt == body.attempt.fact.number and (
                last is None or body.now_s - last >= body.policy.stacks_apart_s
            )
        if isinstance(action, Launch):
            return self._launch is None and self._may_launch(action, body) == ""
        return action.attempt == body.attempt.fact.number

    def begin(self, action: Action, body: Body, durable: bool) -> None:
        """Do what ``begins`` allowed. ``durable``: the decision is on disk; without it nothing is launched."""
        if isinstance(action, Stop):
            self._stops[action.attempt] = self._new_stop(action, body)
            self._stops[action.attempt].tick(body.now_s, body.seen.processes)
        elif isinstance(action, EndStale):
            self._stale = Stopper(action.attempt, body.now_s, body.policy.grace_s, body.policy.unkillable_s)
        elif isinstance(action, Continue):
            count = send_continue(body.seen.processes, self._runtime.proc_root)
            self._tell("continue", action.attempt, count > 0, f"SIGCONT to {count} processes")
        elif isinstance(action, SampleStacks):
            self._sample(action, body)
        elif not durable:
            self._tell("launch", action.attempt, False, "the intent could not be made durable")
        else:
            self._start(action, body)

    def tick(self, body: Body, wanted: Tuple[Action, ...]) -> None:
        """Drive what is under way."""
        launching.reap()
        if self._stale is not None:
            self._end_stale(body, any(isinstance(action, EndStale) for action in wanted))
        if self._launch is not None and self._launch[1].done:
            self._launched(*self._launch)
            self._launch = None

    def stop_reading(
        self, attempt: int, processes: Union[ProcessesReading, Missing], now_s: float
    ) -> Optional[StopReading]:
        """Go on with a stop that was begun, and say how far it is."""
        stopper = self._stops.get(attempt)
        if stopper is None:
            return None
        reading = stopper.tick(now_s, processes)
        if stopper.finished and attempt not in self._stop_told:
            self._stop_told.add(attempt)
            took = f"empty after {now_s - stopper.asked_at_s:.1f} s and {reading.signals_sent} signals"
            self._tell("stop", attempt, True, took, set_empty=True, killed=reading.killed)
        elif reading.unkillable and attempt not in self._stop_told:
            self._stop_told.add(attempt)
            names = ", ".join(f"{p.pid} ({p.comm}, {p.state})" for p in reading.unkillable)
            self._tell("stop", attempt, False, "survived SIGKILL: " + names, set_empty=False, killed=True)
        return reading

    def stacks(self, attempt: int) -> Union[StacksReading, Missing]:
        """The samples of this attempt."""
        if self._sampler is None or self._sampler[0] != attempt:
            return NO_SAMPLE
        return self._sampler[1].reading()

    def stopping(self, attempt: int) -> bool:
        """Whether a stop of ours has begun."""
        return attempt in self._stops

    @property
    def busy(self) -> bool:
        """A launch or a closing is under way in its lane."""
        return self._launch is not None or self._closing is not None

    def outcomes(self) -> List[Outcome]:
        """What has come out since the last call."""
        told, self._outcomes = self._outcomes, []
        return told

    def close_interrupted(self, attempt: Attempt, now_s: float, keeper_holds: Optional[bool]) -> None:
        """Close an intent whose keeper never came, so that a late one finds it closed; the next look shows the end."""
        if self._closing is not None and self._closing.done:
            self._closing = None
        number = attempt.fact.number
        if not attempt.fact.intent_open:
            return
        if self._intent_since[0] != number:
            self._intent_since = (number, now_s)
        began_s = attempt.fact.launched_at_s
        age_s = now_s - (self._intent_since[1] if began_s is None else min(began_s, self._intent_since[1]))
        if self._closing is None and is_interrupted(attempt, intent_age_s=age_s, keeper_holds=keeper_holds):
            self._closing = self._lane.submit(
                lambda: launching.close_interrupted(self._runtime, self._run_dir, number, INTERRUPTED)
            )

    # ---- each action

    def _new_stop(self, action: Stop, body: Body) -> Stopper:
        attempt, number = body.attempt, action.attempt
        inputs = BoxInputs(
            reason={"attempt": number, "because": action.because, "incident": action.incident},
            processes=body.seen.processes,
            gpus=body.seen.gpus,
            log_path=body.log_path,
            observations=body.recent,
            sampler=self._sampler_of(body),
        )
        folder = os.path.join(self._run_dir, "attempts", str(number), "blackbox")
        return Stopper(
            number,
            body.now_s,
            action.grace_s,
            body.policy.unkillable_s,
            box=Sealing(folder, inputs),
            rescan=lambda: body.processes.scan(attempt.main, attempt.keeper, now_s=body.now_s, full=True),
            proc_root=self._runtime.proc_root,
        )

    def _end_stale(self, body: Body, wanted: bool) -> None:
        assert self._stale is not None
        proof = body.seen.proof
        if proof is None:
            return
        left = ProcessesReading(members=proof.stale_ours if wanted else (), main_alive=None, keeper_alive=None)
        reading = self._stale.tick(body.now_s, left)
        if self._stale.finished or reading.unkillable:
            detail = f"leftovers: {reading.signals_sent} signals"
            self._tell("end_stale", self._stale.attempt, self._stale.finished, detail, killed=reading.killed)
            self._stale = None

    def _sampler_of(self, body: Body) -> Optional[Sampler]:
        number, main = body.attempt.fact.number, body.attempt.main
        if main is None:
            return None
        if self._sampler is None or self._sampler[0] != number:
            folder = os.path.join(self._run_dir, "attempts", str(number))
            self._sampler = (number, Sampler(folder, *main, proc_root=self._runtime.proc_root))
        return self._sampler[1]

    def _sample(self, action: SampleStacks, body: Body) -> None:
        sampler = self._sampler_of(body)
        self._sampled_at_s = body.now_s
        asked = sampler is not None and sampler.sample(body.now_s)
        self._tell("sample_stacks", action.attempt, asked, "asked" if asked else "there is nobody to ask")

    def _may_launch(self, action: Launch, body: Body) -> str:
        proof, reading = body.seen.proof, body.seen.processes
        if body.no_launch:
            return body.no_launch
        if action.attempt != body.attempt.fact.number + 1:
            return f"attempt {action.attempt} is not the next one"
        if proof is None or proof.free is not True:
            return "nothing is proven free in this tick"
        if isinstance(reading, Missing) or reading.alive:
            return "the earlier attempt's set is not known to be empty"
        if body.seen.workspace_blind_s > 0:
            return "the workspace does not answer"
        return ""

    def _start(self, action: Launch, body: Body) -> None:
        run_dir, runtime, gpus = self._run_dir, self._runtime, body.gpus

        def work() -> int:
            try:
                return launching.launch(
                    run_dir,
                    action.attempt,
                    action.because,
                    action.remedies,
                    runtime=runtime,
                    gpus=gpus,
                    agent_command=agent_command(),
                    now_s=body.now_s,
                    output_dir=body.output_dir,
                    incident=action.incident,
                )
            except launching.LaunchRefused as error:
                raise OSError(error.reason) from None

        self._launch = (action, self._lane.submit(work))

    def _launched(self, action: Launch, job: Job[int]) -> None:
        try:
            pid = job.result()
            self._tell("launch", action.attempt, True, f"keeper {pid}", keeper_pid=pid)
        except OSError as error:
            self._tell("launch", action.attempt, False, str(error))

    def _tell(self, kind: str, attempt: int, ok: bool, detail: str, **proof: Any) -> None:
        self._outcomes.append(Outcome(kind, attempt, ok, detail, proof))
