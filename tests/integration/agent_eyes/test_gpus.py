"""What the agent sees of GPUs: the real pynvml in the probe child, on the fake NVML library."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dflash_supervise.agent import smi
from dflash_supervise.agent.gpus import ABSENT, NOBODY_ANSWERS, GpuProbe
from dflash_supervise.core.facts import GpusReading, Missing
from tests.fakes.gpus import FakeGpus
from tests.lab.processes import MARKER

GIB = 2**30


@pytest.fixture
def start_probe(
    nvml_command: list[str], no_devices: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., GpuProbe]]:
    monkeypatch.setattr(smi, "FIXED_PATHS", ())  # this machine's own nvidia-smi is not asked
    probes: list[GpuProbe] = []

    def start(env: dict[str, str] | None = None, devices: str = no_devices) -> GpuProbe:
        base = {key: os.environ[key] for key in ("PATH", "HOME", MARKER)}
        probes.append(GpuProbe(nvml_command, env={**base, **(env or {})}, devices=devices))
        return probes[-1]

    yield start
    for probe in probes:
        probe.close()


class Clock:
    """The tick's time, moved by the test; the children live in real time."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def look(self, probe: GpuProbe, wait_s: float = 5.0) -> GpusReading | Missing:
        """One tick that waits for the whole look."""
        self.now_s += 1.0
        probe.ask(self.now_s)
        reading = probe.collect(self.now_s, wait_s)
        deadline = time.monotonic() + wait_s
        while not probe.answered and time.monotonic() < deadline:
            time.sleep(0.02)
            reading = probe.collect(self.now_s, 0.05)
        return reading


def gpus_of(reading: GpusReading | Missing) -> GpusReading:
    assert isinstance(reading, GpusReading), reading
    return reading


def test_eight_gpus_are_read_with_their_units(fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]) -> None:
    fake_gpus.set(3, util=100.0, used=5 * GIB, power=126.0, temp=51.0, memutil=4, throttle=4)
    gpus = gpus_of(Clock().look(start_probe(fake_gpus.env()))).gpus
    assert [gpu.uuid for gpu in gpus] == fake_gpus.uuids
    third = gpus[3]
    assert (third.util_pct, third.mem_util_pct, third.mem_used_bytes) == (100.0, 4.0, 5 * GIB)
    assert (third.power_w, third.power_limit_w, third.temp_c, third.throttle) == (126.0, 700.0, 51.0, 4)
    assert third.energy_j is not None
    assert third.holders == ()
    assert third.error is None
    assert gpus[0].power_w == 75.0


def test_a_holder_is_named_by_its_pid_and_memory(fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]) -> None:
    fake_gpus.hold(2, os.getpid(), GIB)
    gpu = gpus_of(Clock().look(start_probe(fake_gpus.env()))).gpus[2]
    assert gpu.holders is not None
    assert [(holder.pid, holder.mem_bytes) for holder in gpu.holders] == [(os.getpid(), GIB)]
    assert gpu.mem_used_bytes == GIB


def test_a_number_that_the_card_does_not_give_is_none_and_the_rest_stays(
    fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]
) -> None:
    fake_gpus.set(0, err={"nvmlDeviceGetUtilizationRates": 3, "nvmlDeviceGetPowerUsage": 3})
    gpu = gpus_of(Clock().look(start_probe(fake_gpus.env()))).gpus[0]
    assert gpu.util_pct is None
    assert gpu.power_w is None
    assert gpu.temp_c is not None
    assert gpu.error is None


def test_an_old_driver_without_the_new_names_is_read_too(
    laboratory: object, tmp_path: Path, start_probe: Callable[..., GpuProbe]
) -> None:
    old = FakeGpus(tmp_path / "old", n=2, old_driver=True)
    old.driver(version="470.57.02")
    old.set(1, used=3 * GIB, throttle=8)
    old.hold(1, os.getpid(), GIB)
    gpu = gpus_of(Clock().look(start_probe(old.env()))).gpus[1]
    assert (gpu.mem_used_bytes, gpu.throttle) == (4 * GIB, 8)
    assert gpu.holders is not None and gpu.holders[0].pid == os.getpid()


def test_the_drivers_reserve_in_the_old_memory_call_is_learned_and_taken_off(
    fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]
) -> None:
    fake_gpus.set(0, used=GIB // 2, err={"nvmlDeviceGetMemoryInfo_v2": 3})
    fake_gpus.set(1, used=GIB // 2, err={"nvmlDeviceGetMemoryInfo_v2": 3})
    fake_gpus.hold(1, os.getpid(), GIB)
    probe, clock = start_probe(fake_gpus.env()), Clock()
    gpus = gpus_of(clock.look(probe)).gpus
    assert gpus[0].mem_used_bytes == 0
    assert gpus[1].mem_used_bytes is None, "nobody-on-it was never seen, so the reserve is unknown"


def test_a_lost_gpu_says_so_by_its_uuid_and_the_others_answer(
    fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]
) -> None:
    probe, clock = start_probe(fake_gpus.env()), Clock()
    clock.look(probe)
    fake_gpus.set(5, lost=True)
    gpus = gpus_of(clock.look(probe)).gpus
    assert gpus[5].uuid == fake_gpus.uuid(5)
    assert gpus[5].error is not None and "lost" in gpus[5].error
    assert gpus[5].util_pct is None
    assert [gpu.error for gpu in gpus if gpu.index != 5] == [None] * 7


def test_an_xid_is_told_until_a_new_attempt_begins(fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]) -> None:
    probe, clock = start_probe(fake_gpus.env()), Clock()
    clock.look(probe)
    fake_gpus.xid(2, 79)
    clock.look(probe)
    assert gpus_of(clock.look(probe)).gpus[2].xids == (79,)
    probe.forget_xids()
    assert gpus_of(clock.look(probe)).gpus[2].xids == ()


def test_a_driver_of_another_version_is_missing_with_its_words_and_heals(
    fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]
) -> None:
    fake_gpus.driver(init_error=18)
    probe, clock = start_probe(fake_gpus.env()), Clock()
    reading = clock.look(probe)
    assert isinstance(reading, Missing)
    assert "mismatch" in reading.reason
    fake_gpus.driver()
    clock.look(probe)
    assert len(gpus_of(clock.look(probe)).gpus) == 8


def test_a_call_that_hangs_blocks_no_tick_and_is_itself_the_reading(
    fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]
) -> None:
    probe, clock = start_probe(fake_gpus.env()), Clock()
    clock.look(probe)
    fake_gpus.set(2, hang_ms=600_000)
    child = probe.child_pid
    for _ in range(6):
        clock.now_s += 1.0
        probe.ask(clock.now_s)
        probe.collect(clock.now_s, 0.05)
    reading = gpus_of(probe.collect(clock.now_s, 0.0))
    assert reading.stuck_s == pytest.approx(5.0)
    ages = {gpu.index: gpu.age_s for gpu in reading.gpus}
    assert ages[0] < ages[2], "the GPUs before the stuck one were told"
    assert probe.child_pid == child, "no second probe beside a stuck one"
    clock.now_s += 20.0
    old = gpus_of(probe.collect(clock.now_s, 0.0)).gpus[2]
    assert old.error is not None and old.util_pct is None, "an old number is no answer"


def test_a_probe_stuck_for_long_is_killed_and_replaced_while_stuck_goes_on_counting(
    fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]
) -> None:
    probe, clock = start_probe(fake_gpus.env()), Clock()
    clock.look(probe)
    fake_gpus.set(0, hang_ms=600_000)
    first = probe.child_pid
    clock.look(probe, 0.1)
    asked_s = clock.now_s
    fake_gpus.set(0, hang_ms=0)
    clock.now_s += 31.0
    deadline = time.monotonic() + 20.0
    while probe.child_pid in (first, None) and time.monotonic() < deadline:
        clock.now_s += 1.0
        reading = gpus_of(probe.collect(clock.now_s, 0.05))
        assert reading.stuck_s == pytest.approx(clock.now_s - asked_s)
    assert not os.path.exists(f"/proc/{first}/stat")
    while gpus_of(probe.collect(clock.now_s, 0.1)).stuck_s is not None and time.monotonic() < deadline:
        clock.now_s += 0.1
    assert gpus_of(clock.look(probe)).stuck_s is None


def test_a_probe_that_dies_is_missing_and_comes_back(fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe]) -> None:
    probe, clock = start_probe(fake_gpus.env()), Clock()
    clock.look(probe)
    pid = probe.child_pid
    assert pid is not None
    os.kill(pid, 9)
    while os.path.exists(f"/proc/{pid}/stat") and isinstance(probe.collect(clock.now_s, 0.1), GpusReading):
        clock.look(probe, 0.1)
    reading = probe.collect(clock.now_s, 0.0)
    assert isinstance(reading, Missing)
    assert "signal 9" in reading.reason
    clock.now_s += 6.0
    assert len(gpus_of(clock.look(probe)).gpus) == 8


def test_without_the_library_nvidia_smi_answers(
    fake_gpus: FakeGpus, start_probe: Callable[..., GpuProbe], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpus.set(3, util=100.0, used=2 * GIB, power=126.0)
    fake_gpus.ghost(1, 4_000_000, GIB)
    probe, clock = start_probe(fake_gpus.smi_env()), Clock()
    reading = gpus_of(clock.look(probe, 20.0))
    assert [gpu.source for gpu in reading.gpus] == ["nvidia-smi"] * 8
    third = reading.gpus[3]
    assert (third.util_pct, third.mem_used_bytes, third.power_w) == (100.0, 2 * GIB, 126.0)
    assert reading.gpus[1].holders is not None
    assert [holder.pid for holder in reading.gpus[1].holders] == [4_000_000]


def test_without_library_and_nvidia_smi_a_device_file_makes_it_unknown(
    isolated_home: Path, start_probe: Callable[..., GpuProbe], some_devices: str
) -> None:
    probe = start_probe({"PATH": "/nonexistent"}, devices=some_devices)
    assert Clock().look(probe) == Missing(NOBODY_ANSWERS)


def test_without_library_nvidia_smi_and_device_there_are_no_gpus(
    isolated_home: Path, start_probe: Callable[..., GpuProbe]
) -> None:
    probe = start_probe({"PATH": "/nonexistent"})
    assert Clock().look(probe) == GpusReading(gpus=(), absent=ABSENT)
