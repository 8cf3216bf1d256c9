"""The tick: look at what is, let the brain decide, write it down, do it. Level-triggered, one run."""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Deque, Dict, List, Optional, Tuple

from dflash_supervise.agent import adopt, host
from dflash_supervise.agent import launch as launching
from dflash_supervise.agent.files import write_json
from dflash_supervise.agent.goals import Goals
from dflash_supervise.agent.gpus import GpuProbe
from dflash_supervise.agent.hands import Body, Hands
from dflash_supervise.agent.journal import Journal, Told, ages, incident_records, observation_payload, verdict_record
from dflash_supervise.agent.known_attempt import KnownAttempt
from dflash_supervise.agent.observe import Attempt, attempt_of
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.agent.sight import Sight, alive_count, launch_gpus
from dflash_supervise.agent.spec import Spec
from dflash_supervise.agent.spec_store import NoContext, bring_home
from dflash_supervise.agent.workspace import WorkspaceEyes, WorkspaceLook
from dflash_supervise.core.actions import Action
from dflash_supervise.core.decide import Decision, Snapshot, decide
from dflash_supervise.core.facts import GpusReading, Missing, Observation
from dflash_supervise.core.memory import EndedAttempt, Memory
from dflash_supervise.core.verdicts import Note
from dflash_supervise.wire import to_json

WORKSPACE_S = 0.3  # what a tick waits for the workspace; once it is blind, nothing
DURABLE_S = 2.0  # what a decision waits for the disk
BRAIN_EVERY_S = 5.0
HEARTBEAT_S = 10.0
RECENT = 600  # ten minutes of observations for the black box


@dataclass(frozen=True)
class Tick:
    """What a tick came to. ``soon``: the next one should not wait its full second."""

    decision: Optional[Decision] = None
    seen: Optional[Observation] = None
    soon: bool = False
    over: bool = False  # final, nothing left alive, everything written


class Agent:
    """One run's agent between two ticks."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        run_dir: str,
        machine: Dict[str, Any],
        journal: Journal,
        eyes: WorkspaceEyes,
        probe: GpuProbe,
        goals: Goals,
        memory: Memory,
        options: Dict[str, Any],
    ) -> None:
        self.runtime, self.run_dir, self.machine, self.options = runtime, run_dir, machine, options
        self.run_id = os.path.basename(run_dir)
        self.workspace = launching.workspace_of(run_dir)
        self.journal, self.eyes, self.probe, self.goals, self.memory = journal, eyes, probe, goals, memory
        self.hands = Hands(runtime, run_dir)
        self.sight = Sight(runtime, self.run_id, self.workspace, machine, probe, self.hands, options)
        self.runtime_trouble = ""  # why the runtime folder takes nothing; set by whoever drives the ticks
        self.run_dir_gone = False  # as of the last look
        self._known = KnownAttempt(runtime.known_attempt(self.run_id))
        self.main: Optional[Tuple[int, int]] = None  # for whoever wants to wake up when it ends
        self._told = Told()
        self._recent: Deque[str] = deque(maxlen=RECENT)
        self._started: int = memory.attempt.number
        self._brain_s = self._beat_s = 0.0
        self._notes: Tuple[Note, ...] = ()
        self._no_launch = ""
        self._no_context = False
        self.last_tick_ms = 0.0  # set by whoever drives the ticks

    def tick(self, now_s: float) -> Tick:
        """Look, decide, write, act. Bounded in time whatever workspace and driver do."""
        self.probe.ask(now_s)
        self.eyes.begin(now_s)
        look, blind_s = self.eyes.take(now_s, WORKSPACE_S if self.eyes.answered else 0.0)
        if self.goals.update(look.spec if look is not None else None):
            self._say_spec(now_s)
        spec = self.goals.spec
        if look is None and spec is not None and spec.want == "stop":
            look = self._known.alone(now_s)  # a stop waits for no workspace, not even in an agent's first tick
        if look is None or spec is None:
            self._heartbeat(now_s)
            self.journal.flush(None, durable=False)
            return Tick()
        look, self.run_dir_gone = self._known.complete(look), not look.there
        if look.there and look.spec is not None and look.spec.get("generation") != spec.generation:
            self.eyes.also(lambda: bring_home(self.runtime, self.workspace, self.run_id))
        if spec.kind == "adopted" and look.there and look.newest == 0:
            wanted = spec.adopt
            assert wanted is not None
            self.eyes.also(lambda: adopt.adopt(self.run_dir, wanted, now_s, self.runtime.proc_root))
            return Tick(soon=True)
        attempt = attempt_of(look, str(self.machine["boot_id"]))
        seen, waits = self.sight.observe(now_s, spec, look, blind_s, attempt, self.memory)
        self.main = attempt.main if seen.exit is None else None
        self._check(spec, look, seen)
        policy = spec.policy
        if self._no_context and policy.preset == "auto":
            policy = replace(policy, preset="careful")  # what could not be started again is ended on no suspicion
        decision = decide(Snapshot(self.goals.goal(look.stop_file), policy, seen, self.memory, spec.kind))
        self._act(now_s, spec, attempt, seen, decision, look)
        over = decision.assessment.final and not self.hands.busy and not alive_count(seen) and blind_s == 0.0
        return Tick(decision, seen, soon=waits or self.hands.busy, over=over)

    # ---- what only the agent can know

    def _check(self, spec: Spec, look: WorkspaceLook, seen: Observation) -> None:
        """What only the agent can know: another machine, a lost history, a spec that does not parse."""
        notes: List[Note] = []
        uuids = tuple(gpu.uuid for gpu in seen.gpus.gpus) if isinstance(seen.gpus, GpusReading) else ()
        if look.machine is None and look.there and not isinstance(seen.gpus, Missing):
            path, mine = os.path.join(self.run_dir, "machine.json"), dict(self.machine, gpus=list(uuids))
            self.eyes.also(lambda: write_json(path, mine))
        first = look.machine or {}
        changed = host.same_machine(first, self.machine, tuple(first.get("gpus") or ()), uuids)
        if changed is not None:
            notes.append(Note("host_changed", changed))
        if look.newest < spec.highest_attempt:
            text = f"attempt {spec.highest_attempt} was seen before and {look.newest} is the newest on disk"
            notes.append(Note("history_lost", text))
        if look.lost:
            notes.append(Note("history_lost", look.lost))
        launched = spec.kind != "adopted" and look.newest > 0
        self._no_context = launched and not os.path.exists(self.runtime.context_path(self.run_id))
        if self._no_context:
            notes.append(Note("no_context", str(NoContext(look.newest))))
        self._no_launch = notes[0].reason if notes else self.journal.trouble
        witness = "the keeper is gone: how this attempt ends will be seen by nobody" if self.sight.unwitnessed else ""
        said = {
            "spec_kept": self.goals.trouble,
            "blind: records": self.journal.trouble,
            "blind: runtime": self.runtime_trouble,
            "workspace_error": self.eyes.trouble,
            "witness_lost": witness,
        }
        for slug, text in said.items():
            if text:
                notes.append(Note(slug, text))
        self._notes = tuple(notes)

    # ---- write and act

    def _act(
        self, now_s: float, spec: Spec, attempt: Attempt, seen: Observation, decision: Decision, look: WorkspaceLook
    ) -> None:
        body = Body(
            now_s=now_s,
            attempt=attempt,
            processes=self.sight.set_of(attempt.fact.number, spec),
            seen=seen,
            policy=spec.policy,
            gpus=launch_gpus(spec, seen.gpus),
            output_dir=spec.output_dir or None,
            log_path=self.eyes.log_path(attempt.fact.number),
            no_launch=self._no_launch,
            recent=tuple(self._recent),
        )
        begun = [action for action in decision.actions if self.hands.begins(action, body)]
        news = self._write(now_s, seen, decision, look, begun)
        self.memory = decision.memory
        wait_s = DURABLE_S if begun and self.eyes.answered else 0.0
        save = self.memory if news or now_s - self._brain_s >= BRAIN_EVERY_S else None
        if save is not None:
            self._brain_s = now_s
        durable = self.journal.flush(save, durable=news, wait_s=wait_s)
        for action in begun:
            self.hands.begin(action, body, durable)
        self.hands.tick(body, decision.actions)
        for outcome in self.hands.outcomes():
            self.journal.add(now_s, "outcome", **vars(outcome))

    def _write(
        self, now_s: float, seen: Observation, decision: Decision, look: WorkspaceLook, begun: List[Action]
    ) -> bool:
        """Number this tick's records; True when something more than an observation is among them."""
        self._told, payload = observation_payload(self._told, seen)
        self._recent.append(json.dumps(payload, separators=(",", ":")))
        self.journal.add(now_s, "observation", **payload, ages=ages(decision.memory.attempt, now_s))
        self._heartbeat(now_s)
        number, child = seen.attempt.number, look.child
        news = False
        if number > self._started and child is not None:
            self._started, news = number, True
            intent = look.launch or {}
            self.journal.add(
                now_s,
                "attempt_start",
                attempt=number,
                because=intent.get("because", "adopted"),
                remedies=intent.get("remedies", []),
                pid=child.get("pid"),
            )
        for ended in decision.ended:
            news = True
            self.journal.add(now_s, "attempt_end", **_end_payload(ended))
        assessment = replace(decision.assessment, notes=(*decision.assessment.notes, *self._notes))
        self._told, verdict = verdict_record(self._told, assessment, now_s)
        if verdict is not None:
            news = True
            self.journal.add(now_s, "verdict", **verdict)
        self._told, incidents = incident_records(self._told, decision.incidents, now_s)
        for incident in incidents:
            news = True
            self.journal.add(now_s, "incident", **incident)
        for action in begun:
            news = True
            self.journal.add(now_s, "action", **to_json(action))
        return news

    def _heartbeat(self, now_s: float) -> None:
        if now_s - self._beat_s >= HEARTBEAT_S:
            self._beat_s = now_s
            self.journal.add(now_s, "heartbeat", tick_ms=self.last_tick_ms)

    def _say_spec(self, now_s: float) -> None:
        spec = self.goals.spec
        assert spec is not None
        goal = {"want": spec.want, "hold_for_s": spec.hold_for_s, "end_attempt": spec.end_attempt}
        self.journal.add(now_s, "spec", generation=spec.generation, goal=goal, owner=spec.owner)


def _end_payload(ended: EndedAttempt) -> Dict[str, Any]:
    return {
        "attempt": ended.number,
        "verdict": ended.verdict.value,
        "cause": ended.cause,
        "sentence": ended.sentence,
        "key_line": ended.key_line,
        "code": ended.code,
        "signal": ended.signal,
        "step": ended.step,
        "checkpoint_step": ended.checkpoint_step,
        "ran_s": round(ended.ended_at_s - ended.launched_at_s, 3),
    }
