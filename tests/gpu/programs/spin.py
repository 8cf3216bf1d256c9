"""A kernel of one block that waits for a flag which nobody sets: 100 % utilisation at idle power."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def wait_for(flag):  # type: ignore[no-untyped-def]
    value = tl.load(flag, volatile=True)
    while value == 0:
        value = tl.load(flag, volatile=True)


def main() -> None:
    flag = torch.zeros(1, dtype=torch.int32, device="cuda:0")
    torch.cuda.synchronize()
    wait_for[(1,)](flag)
    print("spinning", flush=True)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
