"""What a GPU is really doing, from power and activity, never from utilisation alone.

NVML's utilisation is the share of time in which any kernel was resident: a one-block kernel that spins, or a rank that
waits in a collective for a missing peer, reads 100 % at idle power (124 to 126 W of 700 W on an H200, measured).
"""

from __future__ import annotations

from typing import Optional

from .facts import GpuReading

OFF = "off"
IDLE = "idle"
SPINNING = "spinning"
STARVED = "starved"
WORKING = "working"
UNKNOWN = "unknown"

AT_WORK = (WORKING, STARVED)

# Fractions of the enforced power limit, from the H200 readings: off 0.11, context idle 0.18, spinning 0.18,
# starved (20 ms of work each 200 ms) 0.29, matmul 0.99.
IDLE_FRAC = 0.22
STARVED_FRAC = 0.40
BUSY_UTIL_PCT = 50.0
# Between nothing and busy at idle power a small model does train (2 to 11 % at 119 to 155 W, measured): kernels came
# and went. What waits in a kernel reads 100 %.
SOME_UTIL_PCT = 1.0
# An H200 without a context reports 3.25 MiB; the smallest CUDA context seen takes 500 MiB.
NO_CONTEXT_BYTES = 128 * 2**20


def classify(gpu: GpuReading) -> str:
    """The work class of one GPU: off, idle, spinning, starved, working or unknown."""
    if gpu.error is not None or gpu.power_w is None:
        return UNKNOWN
    idle_w = _idle_w(gpu)
    if idle_w is None:
        return UNKNOWN
    if gpu.power_w > idle_w:
        limit = gpu.power_limit_w
        return STARVED if limit and gpu.power_w < STARVED_FRAC * limit and not _memory_moves(gpu) else WORKING
    if gpu.util_pct is None:
        return UNKNOWN
    if gpu.util_pct >= BUSY_UTIL_PCT and not _memory_moves(gpu):
        return SPINNING
    if gpu.util_pct >= SOME_UTIL_PCT or _memory_moves(gpu):
        return STARVED
    return OFF if (gpu.mem_used_bytes or 0) < NO_CONTEXT_BYTES and not gpu.holders else IDLE


def _idle_w(gpu: GpuReading) -> Optional[float]:
    """What a card at rest with a context stays below, in watts."""
    return IDLE_FRAC * gpu.power_limit_w if gpu.power_limit_w else None


def _memory_moves(gpu: GpuReading) -> bool:
    return gpu.mem_util_pct is not None and gpu.mem_util_pct >= 2.0
