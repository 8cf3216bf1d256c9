"""From the probe's rows to readings, and from pids to holders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from dflash_supervise.core.facts import GpuHolder, GpuReading, GpusReading, Missing

HolderFacts = Callable[[int, Optional[int]], GpuHolder]


def reading_of(row: Dict[str, Any]) -> GpuReading:
    """A probe's row as a reading. Holders are pids only until ``with_holders`` names them."""
    holders: Optional[Tuple[GpuHolder, ...]] = None
    if row.get("holders") is not None:
        holders = tuple(GpuHolder(pid=pid, mem_bytes=used, ours=None) for pid, used in row["holders"])
    return GpuReading(
        uuid=row["uuid"],
        index=row["index"],
        name=row.get("name", ""),
        util_pct=row.get("util_pct"),
        mem_util_pct=row.get("mem_util_pct"),
        mem_used_bytes=row.get("mem_used_bytes"),
        mem_total_bytes=row.get("mem_total_bytes"),
        power_w=row.get("power_w"),
        power_limit_w=row.get("power_limit_w"),
        energy_j=row.get("energy_j"),
        temp_c=row.get("temp_c"),
        sm_mhz=row.get("sm_mhz"),
        throttle=row.get("throttle"),
        ecc_uncorrected=row.get("ecc_uncorrected"),
        holders=holders,
        error=row.get("error"),
        source=row.get("source", "nvml"),
    )


def with_holders(reading: Union[GpusReading, Missing], name: HolderFacts) -> Union[GpusReading, Missing]:
    """The reading with each holder's facts filled in by ``name(pid, mem_bytes)``."""
    if isinstance(reading, Missing):
        return reading
    gpus: List[GpuReading] = []
    for gpu in reading.gpus:
        if gpu.holders:
            gpu = replace(gpu, holders=tuple(name(holder.pid, holder.mem_bytes) for holder in gpu.holders))
        gpus.append(gpu)
    return replace(reading, gpus=tuple(gpus))
