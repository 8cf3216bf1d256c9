"""One process a GPU, all-reducing each step; after the given step the last rank never comes to the collective."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WATCHDOG = timedelta(hours=1)  # of NCCL: far beyond what is measured here


def rank(index: int, ranks: int, port: int, last: int) -> None:
    # NVLink multicast is not what is measured here, and not every host lends it.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(index)
    dist.init_process_group("nccl", rank=index, world_size=ranks, timeout=WATCHDOG)
    gradient = torch.ones(64 * 2**20, device=f"cuda:{index}")
    step = 0
    while True:
        step += 1
        if step > last and index == ranks - 1:
            threading.Event().wait()
        dist.all_reduce(gradient)
        gradient /= ranks
        torch.cuda.synchronize()
        if index == 0:
            print(f"step={step} loss={gradient[0].item():.4f}", flush=True)
        time.sleep(0.2)


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = torch.cuda.device_count()
    mp.spawn(rank, args=(ranks, port, int(sys.argv[1])), nprocs=ranks)


if __name__ == "__main__":
    main()
