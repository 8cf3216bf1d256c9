"""Before a launch, or after an end: something is on a GPU that is not this run's."""

from __future__ import annotations

from typing import List

from ..facts import GpuReading, GpusReading
from ..verdicts import Evidence, Finding, Status, Verdict
from ..view import View

RULE = "stale"
BUSY_UTIL_PCT = 50.0


def stale(view: View) -> Finding:
    """Judge the wanted GPUs while no attempt of this run lives."""
    proof = view.seen.proof
    if proof is None:
        return Finding(RULE, Status.UNKNOWN, "the GPUs were not looked at")
    if proof.free:
        return Finding(RULE, Status.OK, "the GPUs are free")
    if proof.free is None:
        return Finding(RULE, Status.UNKNOWN, "; ".join(proof.blockers) or "it cannot be said whether the GPUs are free")
    evidence = tuple(Evidence(f"leftover process {p.pid} ({p.comm})", p.state) for p in proof.stale_ours)
    evidence += tuple(Evidence("blocker", text) for text in proof.blockers) + tuple(_busy(view))
    cause = "zombie_gpu_memory"
    if proof.foreign:
        cause = "foreign_process"
    elif proof.stale_ours:
        cause = "leftover"
    text = "; ".join(proof.blockers) or "a leftover of an earlier run is on the GPUs"
    return Finding(
        RULE,
        Status.FAILING,
        text,
        verdict=Verdict.STALE_PROCESS,
        cause=cause,
        evidence=evidence or (Evidence("proof", "not free"),),
    )


def _busy(view: View) -> List[Evidence]:
    if not isinstance(view.seen.gpus, GpusReading):
        return []
    out: List[Evidence] = []
    for gpu in view.seen.gpus.gpus:
        if _stands_out(gpu):
            name = f"GPU {gpu.index}"
            out.append(Evidence(name + " utilisation", gpu.util_pct, "%", gpu.age_s))
            used = None if gpu.mem_used_bytes is None else round(gpu.mem_used_bytes / 2**20)
            out.append(Evidence(name + " memory", used, "MiB", gpu.age_s))
            out.append(
                Evidence(name + " holders seen", None if gpu.holders is None else len(gpu.holders), "", gpu.age_s)
            )
    return out


def _stands_out(gpu: GpuReading) -> bool:
    return (
        bool(gpu.holders)
        or (gpu.util_pct is not None and gpu.util_pct >= BUSY_UTIL_PCT)
        or (gpu.mem_used_bytes or 0) > 2**30
    )
