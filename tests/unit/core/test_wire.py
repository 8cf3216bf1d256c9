"""What is written is read back; what another version wrote is read as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dflash_supervise import wire
from dflash_supervise.core.actions import Launch
from dflash_supervise.core.facts import (
    AttemptFact,
    GpuReading,
    GpusReading,
    HostReading,
    LogReading,
    Missing,
    Observation,
    ProgressReading,
)
from dflash_supervise.core.verdicts import Evidence, Finding, Status, Verdict


def observation() -> Observation:
    gpus = GpusReading((GpuReading("GPU-1", 0, util_pct=100.0, mem_used_bytes=0, xids=(79,)),))
    progress, log = ProgressReading("training", 7), LogReading(True, 10)
    return Observation(1.5, AttemptFact(2, 1.0), Missing("denied"), progress, log, gpus, HostReading("b"))


def test_an_observation_comes_back_equal() -> None:
    seen = observation()
    assert wire.from_json(Observation, wire.to_json(seen)) == seen


def test_defaults_are_left_out_and_unknown_fields_are_ignored() -> None:
    data = wire.to_json(GpuReading("GPU-1", 0))
    assert data == {"uuid": "GPU-1", "index": 0}
    assert wire.from_json(GpuReading, {**data, "from_the_future": 1}) == GpuReading("GPU-1", 0)


def test_a_finding_with_enums_and_numbers_keeps_their_types() -> None:
    evidence = (Evidence("step", 5), Evidence("power", 124.5, "W"), Evidence("state", "T"), Evidence("util", None))
    finding = Finding("hang", Status.FAILING, "x", Verdict.HANG, evidence=evidence)
    back = wire.from_json(Finding, wire.to_json(finding))
    assert back == finding and isinstance(back.evidence[0].value, int)


def test_an_action_carries_its_name() -> None:
    assert wire.to_json(Launch(2, "because"))["type"] == "Launch"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "expected an object"),
        ({"uuid": "u"}, "the field index is absent"),
        ({"uuid": "u", "index": "0"}, "expected int"),
        ({"uuid": "u", "index": 0, "xids": 5}, "expected a list"),
        ({"uuid": "u", "index": 0, "util_pct": "high"}, "fits none of its types"),
        ({"uuid": "u", "index": 10**400}, "no number of ours"),
        ({"uuid": "u", "index": 0, "age_s": 10**400}, "GpuReading.age_s"),
        ({"uuid": "u", "index": 0, "age_s": float("inf")}, "GpuReading.age_s"),
        ({"uuid": "u", "index": 0, "age_s": float("nan")}, "GpuReading.age_s"),
    ],
)
def test_a_wrong_shape_names_class_and_field(data: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        wire.from_json(GpuReading, data)


def test_a_row_of_another_length_is_refused() -> None:
    @dataclass(frozen=True)
    class Pair:
        both: tuple[int, str]

    assert wire.from_json(Pair, {"both": [1, "a"]}) == Pair((1, "a"))
    with pytest.raises(ValueError, match=r"Pair\.both: expected 2 items, got 1"):
        wire.from_json(Pair, {"both": [1]})


def test_a_number_that_json_has_not_is_written_as_unknown() -> None:
    seen = ProgressReading("training", 7, loss=float("nan"), tau=float("inf"))
    assert wire.to_json(seen) == {"phase": "training", "step": 7, "loss": None, "tau": None}


def test_a_union_without_a_fitting_class_is_refused() -> None:
    data = wire.to_json(observation())
    data["gpus"] = 5
    with pytest.raises(ValueError, match="fits none"):
        wire.from_json(Observation, data)


def test_what_is_not_ours_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="cannot write"):
        wire.to_json(object())
    assert wire.to_json({1: {2.5}}) == {"1": [2.5]}
