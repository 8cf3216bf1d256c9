"""The guard swaps code inside torch for the whole process, so it is tested in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dflash_trainer

PROBE = """
import sys, threading, torch
from dflash_trainer import fx_guard

if sys.argv[1] == "guarded":
    print("changed", fx_guard.install(), fx_guard.install())
tracing, go_on = threading.Event(), threading.Event()

class Slow(torch.nn.Module):
    def forward(self, x):
        tracing.set()
        go_on.wait(30)
        return x + 1

seen = {}

def trace():
    torch.fx.symbolic_trace(Slow())
    seen["after"] = torch.fx._symbolic_trace.is_fx_tracing()

thread = threading.Thread(target=trace)
thread.start()
tracing.wait(30)
seen["other"] = torch.fx._symbolic_trace.is_fx_tracing()
go_on.set()
thread.join(30)
print("other", seen["other"], "after", seen["after"])
fx_guard.worker_init()
x = torch.ones(3, requires_grad=True)
(x * 2).sum().backward()
print("grad", x.grad.tolist())
"""


@pytest.mark.parametrize(("how", "other"), [("bare", "True"), ("guarded", "False")])
def test_a_trace_in_one_thread_is_seen_in_another_unless_guarded(how: str, other: str) -> None:
    env = os.environ | {"PYTHONPATH": str(Path(dflash_trainer.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    got = subprocess.run(
        [sys.executable, "-c", PROBE, how], env=env, capture_output=True, text=True, timeout=90, check=False
    )
    assert got.returncode == 0, got.stderr
    assert f"other {other} after False" in got.stdout
    assert "grad [2.0, 2.0, 2.0]" in got.stdout
    if how == "guarded":
        assert "fx" in got.stdout and got.stdout.splitlines()[0].endswith("already")
