"""Train a few steps, then fail the way that is named: oom, illegal, assert."""

from __future__ import annotations

import sys
import time

import torch
import triton
import triton.language as tl

STEPS_BEFORE = 5


@triton.jit
def poke(address, offset):  # type: ignore[no-untyped-def]
    tl.store(address + offset, 1.0)


def main() -> None:
    kind = sys.argv[1]
    weights = torch.randn(2048, 2048, device="cuda:0")
    for step in range(1, STEPS_BEFORE + 1):
        weights = torch.tanh(weights @ weights)
        print(f"step={step} loss={weights.abs().mean().item():.4f}", flush=True)
        time.sleep(0.5)
    if kind == "oom":
        kept = []
        while True:
            kept.append(torch.empty(8 * 2**30, dtype=torch.uint8, device="cuda:0"))
    elif kind == "illegal":
        poke[(1,)](weights, 1 << 40)
    elif kind == "assert":
        weights[torch.tensor([99999], device="cuda:0")] += 1
    torch.cuda.synchronize()
    print("nothing failed", flush=True)


if __name__ == "__main__":
    main()
