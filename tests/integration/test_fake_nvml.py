"""The fake NVML, loaded by the real pynvml as on a host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.gpus import FakeGpus

PROLOGUE = """
import json, os, subprocess, sys, time
import pynvml as nv
def named(call, *arguments):
    try:
        return call(*arguments)
    except nv.NVMLError as error:
        return type(error).__name__
def show(value):
    print(json.dumps(value), flush=True)
"""
OPENING = "nv.nvmlInit()\nhandles = [nv.nvmlDeviceGetHandleByIndex(i) for i in range(nv.nvmlDeviceGetCount())]\n"


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    return FakeGpus(tmp_path, n=8)


def ask(gpus: FakeGpus, script: str, *, opening: str = OPENING) -> Any:
    """What a fresh process with pynvml answers to a script that calls show() once."""
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + opening + script],
        env={**os.environ, **gpus.env()},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


class Follower:
    """A long-lived process with pynvml that answers one script a line."""

    def __init__(self, gpus: FakeGpus) -> None:
        loop = "show('ready')\nfor line in sys.stdin: exec(line)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + OPENING + loop],
            env={**os.environ, **gpus.env()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline()) == "ready"

    def ask(self, line: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def follower(gpus: FakeGpus) -> Any:
    process = Follower(gpus)
    yield process
    process.close()


def test_one_gpu_at_full_use_without_memory_or_holder_beside_seven_idle_ones(gpus: FakeGpus) -> None:
    gpus.set(3, util=100, power=126.0)
    seen = ask(
        gpus,
        "show([[nv.nvmlDeviceGetUtilizationRates(h).gpu, nv.nvmlDeviceGetMemoryInfo(h).used,"
        " nv.nvmlDeviceGetPowerUsage(h), len(nv.nvmlDeviceGetComputeRunningProcesses(h))] for h in handles])",
    )
    assert seen[3] == [100, 0, 126000, 0]
    assert [row for index, row in enumerate(seen) if index != 3] == [[0, 0, 75000, 0]] * 7


def test_a_running_process_sees_a_change_at_its_next_call(gpus: FakeGpus, follower: Follower) -> None:
    question = "show(nv.nvmlDeviceGetUtilizationRates(handles[0]).gpu)"
    assert follower.ask(question) == 0
    gpus.set(0, util=55)
    assert follower.ask(question) == 55


def test_a_bad_state_file_leaves_the_last_good_state(gpus: FakeGpus, follower: Follower) -> None:
    gpus.set(0, util=55)
    question = "show(nv.nvmlDeviceGetUtilizationRates(handles[0]).gpu)"
    assert follower.ask(question) == 55
    gpus.state_file.write_text('{"gpus": [{"util": ')
    assert follower.ask(question) == 55


def test_a_holder_and_its_memory_vanish_with_its_process_even_as_a_zombie(gpus: FakeGpus) -> None:
    child = subprocess.Popen(["sleep", "60"])
    gpus.hold(2, child.pid, 3 << 30)
    question = (
        "show([[p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses(handles[2])],"
        " nv.nvmlDeviceGetMemoryInfo(handles[2]).used])"
    )
    assert ask(gpus, question) == [[child.pid], 3 << 30]
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead and not reaped: a zombie
    try:
        assert ask(gpus, question) == [[], 0]
    finally:
        child.wait()


def test_process_lists_agree_in_all_three_versions(gpus: FakeGpus) -> None:
    gpus.hold(1, os.getpid(), 512)
    gpus.ghost(1, 4_000_001, 1024)
    seen = ask(
        gpus,
        "show([sorted([p.pid, p.usedGpuMemory] for p in f(handles[1])) for f in"
        " (nv.nvmlDeviceGetComputeRunningProcesses_v2, nv.nvmlDeviceGetComputeRunningProcesses_v3)]"
        " + [nv.nvmlDeviceGetMemoryInfo(handles[1]).used])",
    )
    both = sorted([[os.getpid(), 512], [4_000_001, 1024]])
    assert seen == [both, both, 1536]


def test_energy_is_the_integral_of_power_and_two_processes_agree(gpus: FakeGpus, follower: Follower) -> None:
    gpus.set(0, power=1000.0)
    question = "show([time.time(), nv.nvmlDeviceGetTotalEnergyConsumption(handles[0])])"
    first_s, first_mj = follower.ask(question)
    _, middle_mj = ask(gpus, "time.sleep(0.3)\n" + question)
    gpus.set(0, power=0.0)
    last_s, last_mj = follower.ask(question)
    assert first_mj < middle_mj <= last_mj
    # 1000 W are one joule a millisecond; the counter cannot have gained more than the clock allows.
    assert 0.3e6 <= last_mj - first_mj <= (last_s - first_s) * 1e6 + 1
    assert follower.ask(question)[1] == last_mj


def test_a_lost_gpu_fails_alone(gpus: FakeGpus, follower: Follower) -> None:
    gpus.set(5, lost=True)
    question = "show([named(nv.nvmlDeviceGetPowerUsage, h) for h in handles])"
    seen = follower.ask(question)
    assert seen[5] == "NVMLError_GpuIsLost"
    assert seen[:5] + seen[6:] == [75000] * 7


def test_one_function_can_fail_while_the_others_answer(gpus: FakeGpus) -> None:
    gpus.set(0, err={"nvmlDeviceGetUtilizationRates": 3})
    seen = ask(
        gpus,
        "show([named(nv.nvmlDeviceGetUtilizationRates, handles[0]), nv.nvmlDeviceGetPowerUsage(handles[0])])",
    )
    assert seen == ["NVMLError_NotSupported", 75000]


def test_a_stuck_call_takes_as_long_as_scripted(gpus: FakeGpus) -> None:
    gpus.set(0, hang_ms=400)
    took_s = ask(gpus, "t = time.time(); nv.nvmlDeviceGetPowerUsage(handles[0]); show(time.time() - t)")
    assert took_s >= 0.4


def test_init_fails_as_after_a_driver_upgrade(gpus: FakeGpus) -> None:
    gpus.driver(init_error=18)
    assert ask(gpus, "show(named(nv.nvmlInit))", opening="") == "NVMLError_LibRmVersionMismatch"


def test_an_xid_is_delivered_once(gpus: FakeGpus, follower: Follower) -> None:
    follower.ask(
        "es = nv.nvmlEventSetCreate();"
        " [nv.nvmlDeviceRegisterEvents(h, nv.nvmlEventTypeXidCriticalError, es) for h in handles]; show(1)"
    )
    gpus.xid(4, 79)
    event = "e = nv.nvmlEventSetWait_v2(es, 5000); show([nv.nvmlDeviceGetIndex(e.device), e.eventData])"
    assert follower.ask(event) == [4, 79]
    assert follower.ask("show(named(nv.nvmlEventSetWait_v2, es, 50))") == "NVMLError_Timeout"


def test_an_old_driver_lacks_the_new_symbols_and_keeps_the_old_ones(tmp_path: Path) -> None:
    gpus = FakeGpus(tmp_path, n=1, old_driver=True)
    seen = ask(
        gpus,
        "show([named(nv.nvmlDeviceGetComputeRunningProcesses_v3, handles[0]),"
        " nv.nvmlDeviceGetComputeRunningProcesses_v2(handles[0]),"
        " named(nv.nvmlDeviceGetCurrentClocksEventReasons, handles[0]),"
        " nv.nvmlDeviceGetCurrentClocksThrottleReasons(handles[0])])",
    )
    assert seen[1::2] == [[], 0]
    assert seen[0] in ("NVMLError_FunctionNotFound", "NVMLLibraryMismatchError")
    assert seen[2] in ("NVMLError_FunctionNotFound", "NVMLLibraryMismatchError")


def test_without_a_state_file_there_is_no_driver(gpus: FakeGpus) -> None:
    gpus.state_file.unlink()
    assert ask(gpus, "show(named(nv.nvmlInit))", opening="") == "NVMLError_DriverNotLoaded"


def smi(gpus: FakeGpus, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["nvidia-smi", *arguments],
        env={**os.environ, **gpus.smi_env()},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_nvidia_smi_tells_the_same_story(gpus: FakeGpus) -> None:
    gpus.set(3, util=100, power=126.0)
    gpus.hold(0, os.getpid(), 2 << 30)
    query = "--query-gpu=index,utilization.gpu,memory.used,power.draw,fan.speed"
    rows = smi(gpus, query, "--format=csv,noheader,nounits").stdout.splitlines()
    assert rows[0] == "0, 0, 2048, 75.00, [N/A]"
    assert rows[3] == "3, 100, 0, 126.00, [N/A]"
    holders = smi(gpus, "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader").stdout
    assert holders == f"{os.getpid()}, 2048 MiB, {gpus.uuid(0)}\n"
    assert len(smi(gpus, "-L").stdout.splitlines()) == 8


def test_nvidia_smi_gives_up_on_a_lost_gpu(gpus: FakeGpus) -> None:
    gpus.set(6, lost=True)
    answer = smi(gpus, "--query-gpu=index", "--format=csv,noheader")
    assert answer.returncode == 15
    assert "GPU6: GPU is lost" in answer.stdout
