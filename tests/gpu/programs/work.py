"""Matrix products back to back on every GPU, a line a step; ends after the given number of steps."""

from __future__ import annotations

import sys
import time

import torch


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    pairs = [
        torch.randn(2, 8192, 8192, device=f"cuda:{i}", dtype=torch.bfloat16) for i in range(torch.cuda.device_count())
    ]
    for step in range(1, steps + 1):
        began = time.perf_counter()
        for _ in range(200):
            for pair in pairs:
                torch.mm(pair[0], pair[1])
        for i in range(len(pairs)):
            torch.cuda.synchronize(i)
        print(f"step={step} loss={1 / step:.4f} s={time.perf_counter() - began:.3f}", flush=True)


if __name__ == "__main__":
    main()
