"""One observation: /proc, GPUs, the run directory and the host, brought together without waiting for any of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Optional, Tuple, Union

from dflash_supervise.agent import host, proof, shapes
from dflash_supervise.agent import launch as launching
from dflash_supervise.agent.files import read_json
from dflash_supervise.agent.gpu_rows import with_holders
from dflash_supervise.agent.gpus import GpuProbe
from dflash_supervise.agent.hands import Hands
from dflash_supervise.agent.observe import LOG_WAITS_S, Attempt, exit_of
from dflash_supervise.agent.procs import ProcessSet
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.agent.sockets import moved_bytes
from dflash_supervise.agent.spec import Spec
from dflash_supervise.agent.workspace import WorkspaceLook
from dflash_supervise.core.facts import (
    ExitReading,
    GpusReading,
    Missing,
    Observation,
    ProcessesReading,
    ProofReading,
)
from dflash_supervise.core.memory import Memory

GAP_S = 5.0  # a longer time between two looks was a suspend or a hang: nobody was silent in it
GPU_S = 0.15  # what a tick waits for the GPUs; later answers come with their age
SOCKETS_EVERY_S = 5.0


class Sight:
    """What must be kept from look to look: the process set, baselines, when an end was first seen."""

    def __init__(
        self,
        runtime: Runtime,
        run_id: str,
        workspace: str,
        machine: Dict[str, Any],
        probe: GpuProbe,
        hands: Hands,
        options: Dict[str, Any],
    ) -> None:
        self.runtime, self.run_id, self.workspace, self.machine = runtime, run_id, workspace, machine
        self.probe, self.hands, self.options = probe, hands, options
        self._baselines = proof.Baselines(runtime.baselines_path)
        self._set: Optional[ProcessSet] = None
        self._sockets: Tuple[float, Optional[int]] = (0.0, None)
        self._end_seen_s: Tuple[int, float] = (0, 0.0)
        self._empty: Tuple[int, float, float] = (0, 0.0, 0.0)  # attempt, since when its set is empty, last look
        self.unwitnessed = False  # the attempt lives and its keeper does not

    def observe(
        self, now_s: float, spec: Spec, look: WorkspaceLook, blind_s: float, attempt: Attempt, memory: Memory
    ) -> Tuple[Observation, bool]:
        """(the observation, whether an end is held back until its log has been read to the last line)."""
        number = attempt.fact.number
        members = self.set_of(number, spec)
        processes = self._processes(members, attempt, now_s)
        gpus = with_holders(self.probe.collect(now_s, GPU_S), members.holder)
        keeper_holds = self.runtime.keeper_holds(self.run_id, number) if number else False
        self.hands.close_interrupted(attempt, now_s, keeper_holds)
        known = isinstance(processes, ProcessesReading)
        main_alive = processes.main_alive if isinstance(processes, ProcessesReading) else None
        self.unwitnessed = main_alive is True and attempt.keeper is not None and keeper_holds is False
        ended = exit_of(
            look,
            attempt,
            exit_copy=shapes.exit_told(read_json(self.runtime.exit_copy(self.run_id, number))) if number else None,
            main_alive=main_alive,
            keeper_alive=keeper_holds if known else None,
            silent_s=self._silent_s(number, processes, now_s),
            by_us=self._by_us(number, memory),
        )
        shown, waits = self._with_whole_log(ended, look, memory, now_s)
        seen = Observation(
            at_s=now_s,
            attempt=attempt.fact,
            processes=processes,
            progress=look.progress,
            log=look.log,
            gpus=gpus,
            host=host.look(self.machine, look.disk_free_bytes, look.disk_free_inodes, self.runtime.proc_root),
            exit=shown,
            stop=self.hands.stop_reading(number, processes, now_s),
            stacks=self.hands.stacks(number),
            workspace_blind_s=blind_s,
        )
        if number == 0 or ended is not None:
            seen = replace(seen, proof=self._proof(spec, look, members, seen))
        return seen, waits

    def set_of(self, number: int, spec: Spec) -> ProcessSet:
        """The process set of this attempt."""
        if self._set is None or self._set.token[1] != number:
            self._set = ProcessSet(
                self.run_id,
                number,
                proc_root=self.runtime.proc_root,
                memory_path=self.runtime.set_memory(self.run_id, number) if number else None,
                own_session=spec.kind != "adopted",
                dev_glob=str(self.options.get("dev_nvidia_glob", "/dev/nvidia*")),
            )
            self.probe.forget_xids()
        return self._set

    def _processes(self, members: ProcessSet, attempt: Attempt, now_s: float) -> Union[ProcessesReading, Missing]:
        try:
            found = members.scan(attempt.main, attempt.keeper, now_s=now_s)
        except OSError as error:
            return Missing(f"/proc cannot be read: {error}")
        at_s, moved = self._sockets
        if now_s - at_s >= SOCKETS_EVERY_S or now_s < at_s:
            moved = moved_bytes([process.pid for process in found.alive], self.runtime.proc_root)
            self._sockets = (now_s, moved)
        return replace(found, socket_bytes=moved)

    def _silent_s(self, number: int, processes: Union[ProcessesReading, Missing], now_s: float) -> float:
        """For how long nothing of the attempt has lived, as far as that was seen without a gap."""
        if isinstance(processes, Missing) or processes.main_alive is not False or processes.alive:
            self._empty = (0, 0.0, 0.0)
            return 0.0
        of, since_s, last_s = self._empty
        if of != number or not 0.0 <= now_s - last_s <= GAP_S:
            since_s = now_s
        self._empty = (number, since_s, now_s)
        return now_s - since_s

    def _by_us(self, number: int, memory: Memory) -> bool:
        decided = memory.stop is not None and memory.stop.attempt == number
        return decided or self.hands.stopping(number)

    def _with_whole_log(
        self, ended: Optional[ExitReading], look: WorkspaceLook, memory: Memory, now_s: float
    ) -> Tuple[Optional[ExitReading], bool]:
        """(the end, or None while its log has not been read to the last line; whether that is being waited for)."""
        number = look.newest
        if ended is None or any(old.number == number for old in memory.ended):
            return ended, False
        if self._end_seen_s[0] != number:
            self._end_seen_s = (number, now_s)
        # A look that found exit.json, or began after the end was seen, has read all that came before the end.
        whole = look.exit is not None or look.at_s > self._end_seen_s[1]
        if (whole and not look.log_behind) or now_s - self._end_seen_s[1] > LOG_WAITS_S:
            return ended, False
        return None, True

    def _proof(self, spec: Spec, look: WorkspaceLook, members: ProcessSet, seen: Observation) -> ProofReading:
        gpus = seen.gpus
        alive = alive_count(seen) if isinstance(seen.processes, ProcessesReading) else None
        self._baselines.learn(gpus, set_empty=None if alive is None else alive == 0)
        wanted = wanted_uuids(spec, gpus)
        locks = launching.lock_blockers(self.runtime, self.run_id, self.workspace, wanted or ())
        return proof.look(
            run_id=self.run_id,
            attempt=seen.attempt.number,
            processes=seen.processes,
            others=members.others,
            gpus=gpus,
            wanted=wanted,
            baselines=self._baselines,
            runtime=self.runtime,
            workspace=self.workspace,
            workspace_runs=frozenset(look.siblings),
            locks=locks,
        )


def wanted_uuids(spec: Spec, gpus: Union[GpusReading, Missing]) -> Optional[Tuple[str, ...]]:
    """The GPUs that must be free: UUIDs, () for none, None for all that the reading shows."""
    if spec.gpus == "none":
        return ()
    if spec.gpus == "all":
        absent = isinstance(gpus, GpusReading) and gpus.absent is not None
        return () if absent else None
    return tuple(spec.gpus)


def launch_gpus(spec: Spec, gpus: Union[GpusReading, Missing]) -> Optional[Tuple[str, ...]]:
    """The GPUs that a launch gives to the trainer and locks: ``all`` means those that were proven free just now."""
    wanted = wanted_uuids(spec, gpus)
    if wanted is not None:
        return wanted
    return tuple(gpu.uuid for gpu in gpus.gpus) if isinstance(gpus, GpusReading) else None


def alive_count(seen: Observation) -> int:
    """Living members of the set; 0 also when they cannot be read."""
    return len(seen.processes.alive) if isinstance(seen.processes, ProcessesReading) else 0
