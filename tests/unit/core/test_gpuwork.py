"""Power tells waiting from working; a card that does not say is unknown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.core.facts import GpuHolder, GpuReading
from dflash_supervise.core.gpuwork import classify

# util %, memory util %, W, MiB: the H200 readings of the project (700 W limit)
MEASURED = [
    (0.0, 0.0, 78.0, 0, "off"),
    (0.0, 0.0, 124.0, 620, "idle"),
    (100.0, 0.0, 123.5, 620, "spinning"),
    (100.0, 0.0, 125.8, 1522, "spinning"),
    (0.0, 0.0, 122.0, 1522, "idle"),
    (100.0, 25.0, 692.0, 9000, "working"),
    (0.9, 0.2, 201.0, 9000, "starved"),
]


RECORDED = json.loads((Path(__file__).parents[2] / "data/readings/h200_x2.json").read_text())


@pytest.mark.parametrize("row", RECORDED["rows"], ids=lambda row: str(row["what"]))
def test_every_reading_that_was_recorded_has_its_class(row: dict[str, Any]) -> None:
    held = tuple(GpuHolder(1, None, None) for _ in range(row["holders"]))
    one = card(row["util_pct"], row["mem_util_pct"], row["power_w"], row["mem_used_bytes"] >> 20)
    one = replace(one, power_limit_w=RECORDED["power_limit_w"], holders=held)
    assert classify(one) == row["want"]


def card(util: float | None, memutil: float | None, watts: float | None, mib: int, scale: float = 1.0) -> GpuReading:
    power = None if watts is None else watts * scale
    return GpuReading("GPU-1", 0, "", util, memutil, mib * 2**20, 141 * 2**30, power, 700.0 * scale)


@pytest.mark.parametrize(("util", "memutil", "watts", "mib", "want"), MEASURED)
@pytest.mark.parametrize("scale", [1.0, 0.5, 1.4])
def test_measured_loads_have_their_class_on_cards_of_any_limit(
    util: float, memutil: float, watts: float, mib: int, want: str, scale: float
) -> None:
    assert classify(card(util, memutil, watts, mib, scale)) == want


@pytest.mark.parametrize(
    ("util", "memutil", "watts", "want"),
    [
        (100.0, None, None, "unknown"),
        (None, None, 124.0, "unknown"),
        (100.0, 30.0, 124.0, "starved"),
        (10.0, 5.0, 124.0, "starved"),
        (50.0, 30.0, 250.0, "working"),
    ],
)
def test_absent_counters_stay_unknown_and_moving_memory_is_work(
    util: float | None, memutil: float | None, watts: float | None, want: str
) -> None:
    assert classify(card(util, memutil, watts, 900)) == want


def test_an_error_or_a_card_without_limit_and_baseline_is_unknown() -> None:
    assert classify(GpuReading("u", 0, error="GPU is lost", power_w=100.0)) == "unknown"
    assert classify(GpuReading("u", 0, power_w=100.0, util_pct=0.0)) == "unknown"


def test_a_card_that_somebody_holds_is_idle_and_not_off() -> None:
    held = GpuReading(
        "u", 0, util_pct=0.0, power_w=80.0, power_limit_w=700.0, mem_used_bytes=0, holders=(GpuHolder(1, None, None),)
    )
    assert classify(held) == "idle"
