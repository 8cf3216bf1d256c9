"""Proof that nothing of an earlier attempt is left and that the wanted GPUs are free. Looked at fresh in each tick.

Proven is: the set is empty, no leftover of this workspace lives, and each wanted GPU is back at the lowest memory it
was ever seen with while nobody held it. Surplus needs a named holder; work or memory that nobody owns up to blocks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, List, Optional, Tuple, Union

from dflash_supervise.agent.runtime import Runtime, read_json, write_json
from dflash_supervise.agent.strangers import TokenHolder
from dflash_supervise.core.facts import (
    GpuHolder,
    GpuReading,
    GpusReading,
    Missing,
    ProcessesReading,
    ProcessFact,
    ProofReading,
)

MIB = 1 << 20
SLACK_BYTES = 64 * MIB  # the driver's own memory wanders a little; a CUDA context takes several times this
FIRST_BASELINE_MAX_BYTES = 512 * MIB  # more than this on a GPU without holders is somebody's, not a baseline
BUSY_UTIL_PCT = 90.0
IDLE_UTIL_PCT = 5.0
OLD_S = 10.0


class Baselines:
    """The lowest memory each GPU was seen with while nobody held it, by UUID; kept on this host across runs."""

    def __init__(self, path: str) -> None:
        self._path = path
        saved = read_json(path) or {}
        self._bytes: Dict[str, int] = {u: v for u, v in saved.items() if isinstance(v, int) and v >= 0}

    def get(self, uuid: str) -> Optional[int]:
        return self._bytes.get(uuid)

    def learn(self, gpus: Union[GpusReading, Missing], *, set_empty: Optional[bool]) -> bool:
        """Take in a look. Only an idle GPU without holders teaches, and only while no attempt of ours lives.

        Writes the file when something new was learned, if that goes, and returns whether it was.
        """
        if isinstance(gpus, Missing) or set_empty is not True:
            return False
        learned = False
        for gpu in gpus.gpus:
            used, old = gpu.mem_used_bytes, self._bytes.get(gpu.uuid)
            idle = gpu.holders == () and (gpu.util_pct is None or gpu.util_pct <= IDLE_UTIL_PCT) and gpu.error is None
            if idle and used is not None and used < (FIRST_BASELINE_MAX_BYTES if old is None else old):
                self._bytes[gpu.uuid] = used
                learned = True
        if learned:
            with suppress(OSError):  # this process knows it all the same
                write_json(self._path, self._bytes, durable=False)
        return learned


@dataclass
class _Case:
    """What speaks against: said for sure, or not answered."""

    blockers: List[str] = field(default_factory=list)
    unknown: bool = False
    blocked: bool = False
    foreign: bool = False
    unseen: bool = False

    def block(self, sentence: str, *, foreign: bool = False, unseen: bool = False) -> None:
        self.blockers.append(sentence)
        self.blocked = True
        self.foreign |= foreign
        self.unseen |= unseen

    def doubt(self, sentence: str) -> None:
        self.blockers.append(sentence)
        self.unknown = True

    @property
    def free(self) -> Optional[bool]:
        return False if self.blocked else None if self.unknown else True


def look(
    *,
    run_id: str,
    attempt: int,
    processes: Union[ProcessesReading, Missing],
    others: Iterable[TokenHolder],
    gpus: Union[GpusReading, Missing],
    wanted: Optional[Tuple[str, ...]],
    baselines: Baselines,
    runtime: Runtime,
    workspace: str,
    workspace_runs: FrozenSet[str] = frozenset(),
    locks: Tuple[str, ...] = (),
) -> ProofReading:
    """Weigh one tick's readings.

    attempt: the newest number known (0: none). others: ``ProcessSet.others``. wanted: GPU UUIDs, None for all that the
    reading shows, () for a run without GPUs. workspace_runs: run ids whose folders lie in this workspace, as far as
    known. locks: sentences about locks held by others (``launch.lock_blockers``).
    """
    case = _Case()
    set_empty: Optional[bool] = None
    if isinstance(processes, Missing):
        case.doubt(f"the process table could not be read: {processes.reason}")
    else:
        set_empty = not processes.alive
        if processes.alive:
            case.block(f"attempt {attempt} still has {_listed(processes.alive)}")
    stale: List[ProcessFact] = []
    for other in others:
        if _same_workspace(other, run_id, workspace, workspace_runs) and not other.serves_others:
            _weigh_leftover(other, run_id, attempt, runtime, case, stale)
    for sentence in locks:
        case.block(sentence)
    _weigh_gpus(gpus, wanted, baselines, {p.pid for p in stale}, case)
    return ProofReading(
        set_empty=set_empty,
        free=case.free,
        blockers=tuple(case.blockers),
        stale_ours=tuple(stale),
        foreign=case.foreign,
        unseen=case.unseen,
    )


# ---------------------------------------------------------------- leftovers


def _same_workspace(other: TokenHolder, run_id: str, workspace: str, runs: FrozenSet[str]) -> bool:
    if other.run_id == run_id or other.run_id in runs:
        return True
    return other.workspace is not None and os.path.normpath(other.workspace) == os.path.normpath(workspace)


def _weigh_leftover(
    other: TokenHolder, run_id: str, attempt: int, runtime: Runtime, case: _Case, stale: List[ProcessFact]
) -> None:
    """Stale only if nobody answers for it: no keeper above it or holding its lock, and no agent of another run."""
    who = f"pid {other.process.pid} ({other.process.comm}) of {other.run_id} attempt {other.attempt}"
    kept = runtime.keeper_holds(other.run_id, other.attempt)
    watched = runtime.agent_holds(other.run_id) if other.run_id != run_id else False
    if other.run_id == run_id and other.attempt > attempt:
        case.block(f"{who} belongs to an attempt that this run directory knows nothing of")
    elif other.keeper_above or kept or watched:
        case.block(f"{who} is alive in this workspace")
    elif kept is None or watched is None:
        case.doubt(f"{who} lives in this workspace; whether its keeper does cannot be told")
    else:
        case.block(f"{who} is a leftover")
        stale.append(other.process)


# ---------------------------------------------------------------- GPUs


def _weigh_gpus(
    gpus: Union[GpusReading, Missing],
    wanted: Optional[Tuple[str, ...]],
    baselines: Baselines,
    stale: Iterable[int],
    case: _Case,
) -> None:
    if wanted == ():
        return
    if isinstance(gpus, Missing):
        case.doubt(f"the GPUs could not be read: {gpus.reason}")
        return
    if gpus.stuck_s is not None:
        case.doubt(f"the GPU driver has not answered for {gpus.stuck_s:.0f} s")
    seen = {gpu.uuid: gpu for gpu in gpus.gpus}
    for uuid in seen if wanted is None else wanted:
        gpu = seen.get(uuid)
        if gpu is None:
            case.block(f"GPU {uuid} is not there")
        else:
            _weigh_gpu(gpu, baselines.get(uuid), frozenset(stale), case)


def _weigh_gpu(gpu: GpuReading, baseline: Optional[int], stale: FrozenSet[int], case: _Case) -> None:
    name = f"GPU {gpu.index}"
    if gpu.error is not None:
        case.block(f"{name} does not answer: {gpu.error}")
        return
    if gpu.age_s > OLD_S:
        case.doubt(f"the last look at {name} is {gpu.age_s:.0f} s old")
        return
    for holder in gpu.holders or ():
        _weigh_holder(name, holder, stale, case)
    if gpu.holders:
        return
    limit = (FIRST_BASELINE_MAX_BYTES if baseline is None else baseline) + SLACK_BYTES
    nobody = "no process that we can see" if gpu.holders == () else "the driver does not tell whose"
    if gpu.mem_used_bytes is not None and gpu.mem_used_bytes > limit:
        case.block(f"{name} holds {gpu.mem_used_bytes // MIB} MiB, {nobody}", unseen=True)
    elif gpu.util_pct is not None and gpu.util_pct >= BUSY_UTIL_PCT:
        used = "unknown memory" if gpu.mem_used_bytes is None else f"{gpu.mem_used_bytes // MIB} MiB"
        case.block(f"{name} is at {gpu.util_pct:.0f} % with {used}, {nobody}", unseen=True)
    elif gpu.mem_used_bytes is None:
        case.doubt(f"{name} does not say how much memory is used")
    elif gpu.holders is None and baseline is None:
        case.doubt(f"{name} does not tell its holders, and was never seen free before")


def _weigh_holder(name: str, holder: GpuHolder, stale: FrozenSet[int], case: _Case) -> None:
    used = "unknown memory" if holder.mem_bytes is None else f"{holder.mem_bytes // MIB} MiB"
    if holder.ours is None:
        case.block(f"{name} is held by pid {holder.pid}, which is not visible from here ({used})", unseen=True)
    elif holder.ours:
        case.block(f"{name} is still held by pid {holder.pid} ({holder.comm}) of this attempt ({used})")
    elif holder.pid in stale:
        case.block(f"{name} is held by the leftover pid {holder.pid} ({holder.comm}, {used})")
    else:
        who = f"pid {holder.pid} ({holder.comm}, uid {holder.uid}{_of_run(holder)})"
        case.block(f"{name} is used by {who}, {used}", foreign=True)


def _of_run(holder: GpuHolder) -> str:
    return "" if holder.run_token is None else f", run {holder.run_token}"


def _listed(processes: Tuple[ProcessFact, ...]) -> str:
    """At most four of them, for one sentence."""
    named = ", ".join(f"{p.pid} ({p.comm}, state {p.state})" for p in processes[:4])
    more = len(processes) - 4
    return f"pid {named}" + (f" and {more} more" if more > 0 else "")
