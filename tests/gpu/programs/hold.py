"""Hold so many GiB of the first GPU's memory and do nothing."""

from __future__ import annotations

import sys
import time

import torch


def main() -> None:
    held = torch.empty(int(sys.argv[1]) * 2**30, dtype=torch.uint8, device="cuda:0")
    held.fill_(1)
    torch.cuda.synchronize()
    print("holding", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
