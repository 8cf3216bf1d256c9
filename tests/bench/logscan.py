"""How fast the log scanner reads: ``python -m tests.bench.logscan`` prints a table for one core, best of three."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dflash_supervise.core.logscan import LogScanner

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
SIZE_BYTES = 16 * MIB
CHUNK_BYTES = 64 * 1024
WORDS = (ROOT / "LICENSE").read_text().split()


def main() -> None:
    """Print MB/s for logs of several kinds."""
    print(f"{'log':<44}{'MB/s':>8}")
    for name, make in LOGS:
        data = make(random.Random(1))
        best_s = min(_seconds(data) for _ in range(3))
        print(f"{name:<44}{len(data) / best_s / 1e6:>8.1f}")


def _seconds(data: bytes) -> float:
    scanner = LogScanner()
    began = time.process_time()
    for at in range(0, len(data), CHUNK_BYTES):
        scanner.feed(data[at : at + CHUNK_BYTES])
    scanner.reading(exists=True, size_bytes=len(data))
    return time.process_time() - began


def _filled(lines: Iterator[str]) -> bytes:
    out, size = [], 0
    while size < SIZE_BYTES:
        line = next(lines)
        out.append(line)
        size += len(line)
    return "".join(out).encode()


def _steps(rng: random.Random) -> bytes:
    def lines() -> Iterator[str]:
        step = 0
        while True:
            step += 1
            yield (
                f"2026-03-03 02:10:{step % 60:02d},{rng.randrange(1000):03d} INFO [train] step={step}/200000 "
                f"loss={rng.uniform(2, 3):.4f} acc=0.593 lr=6.00e-04 gnorm=0.92 tok/s={rng.randrange(48000, 49000)} "
                f"data_wait=0.0{rng.randrange(10)}s mem=61.1GB\n"
            )

    return _filled(lines())


def _mixed(rng: random.Random) -> bytes:
    """Every tenth line a step, the rest what libraries print, each with numbers of its own."""

    def lines() -> Iterator[str]:
        step = 0
        while True:
            step += 1
            for rank in range(8):
                yield f"[rank{rank}]: gpu{rank}:{rng.randrange(99999)}:{step} NCCL INFO Channel 0{rank} via P2P\n"
            yield f"/opt/venv/lib/python3.11/site-packages/torch/utils/x.py:{step}: FutureWarning: it is deprecated\n"
            yield f"step={step} loss={rng.uniform(2, 3):.4f} tok/s={rng.randrange(48000, 49000)}\n"

    return _filled(lines())


def _prose(rng: random.Random) -> bytes:
    """Samples of text: no line has the shape of another."""

    def lines() -> Iterator[str]:
        while True:
            yield " ".join(rng.choice(WORDS) for _ in range(20)) + "\n"

    return _filled(lines())


def _bars(rng: random.Random) -> bytes:
    def lines() -> Iterator[str]:
        step = 0
        while True:
            step += 1
            end = "\n" if step % 100 == 0 else ""
            yield f"\r {step % 100:3d}%|{'#' * (step % 10):<10}| {step}/275400 [{step}:16<8:43:07, 12.15s/it]{end}"

    return _filled(lines())


def _long(rng: random.Random) -> bytes:
    return (b"x" * (10 * MIB) + b"\n") * 2


def _tracebacks(rng: random.Random) -> bytes:
    def lines() -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield f"[rank{number % 8}]: Traceback (most recent call last):\n"
            for depth in range(12):
                yield f'[rank{number % 8}]:   File "/opt/trainer/specdraft/a{depth}.py", line {number}, in f{depth}\n'
                yield f"[rank{number % 8}]:     return self.f{depth + 1}(batch)\n"
            yield f"[rank{number % 8}]: RuntimeError: the size of tensor a ({number}) must match\n"

    return _filled(lines())


LOGS: tuple[tuple[str, Callable[[random.Random], bytes]], ...] = (
    ("steps alone", _steps),
    ("steps, NCCL lines of 8 ranks, warnings", _mixed),
    ("progress bars with carriage returns", _bars),
    ("prose, no two lines alike", _prose),
    ("lines of 10 MiB", _long),
    ("tracebacks alone", _tracebacks),
)

if __name__ == "__main__":
    main()
