"""What the processes of one attempt share: tensors in one piece of memory.

The memory is a memfd: it needs no room in /dev/shm, which containers keep small, and it is gone with the last
process that maps it, however that process ends.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dflash_trainer import log

if TYPE_CHECKING:  # a worker needs no session
    from dflash_trainer.session import Session

ALIGN_BYTES = 128
GRAD_PLACES = 2  # for each drafter: one is read by the loop while the next is written
Plan = list[tuple[str, str, list[int]]]  # (name, dtype, shape) in the order in which they lie there


class Arena:
    """Named tensors that every process of the attempt sees; whoever writes must know that nobody reads."""

    def __init__(self, fd: int, plan: Plan) -> None:
        self.fd = fd
        self.plan = plan
        self._at = {name: (at, getattr(torch, dtype), shape) for at, name, dtype, shape in _laid_out(plan)}
        self._memory = mmap.mmap(fd, _size_bytes(plan))

    @classmethod
    def create(cls, tensors: Mapping[str, tuple[torch.dtype, Sequence[int]]]) -> Arena:
        plan = [(name, str(dtype).removeprefix("torch."), list(shape)) for name, (dtype, shape) in tensors.items()]
        fd = os.memfd_create("dflash-workers", os.MFD_CLOEXEC)
        os.ftruncate(fd, _size_bytes(plan))
        return cls(fd, plan)

    def __getitem__(self, name: str) -> Tensor:
        """A view: writing into it is seen everywhere."""
        at, dtype, shape = self._at[name]
        flat = torch.frombuffer(self._memory, dtype=dtype, count=math.prod(shape), offset=at)
        return flat.view(shape)

    def below(self, prefix: str) -> dict[str, Tensor]:
        """Every tensor whose name begins with the prefix, by the rest of its name, in order."""
        return {name.removeprefix(prefix): self[name] for name, _, _ in self.plan if name.startswith(prefix)}

    def pin(self) -> None:
        """Let a GPU copy from and to it at full speed; without, it is only slower."""
        runtime = torch.cuda.cudart()
        first = torch.frombuffer(self._memory, dtype=torch.uint8)
        if int(runtime.cudaHostRegister(first.data_ptr(), first.numel(), 0)) != 0:
            log.warning("workers", "shared memory is not pinned: copies to and from the GPU are slower")


def tensors_of(session: Session) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Everything that processes share, by name; only what depends on workers exists several times."""
    layout, config = session.layout, session.config
    masters = list(session.masters.named_parameters())
    rows, length = config.optim.micro_rows, session.rows.tokens.shape[1]
    taps = (layout.dtype, (rows, length, len(session.taps) * config.target.hidden))

    def like(tensor: Tensor) -> tuple[torch.dtype, tuple[int, ...]]:
        return tensor.dtype, tuple(tensor.shape)

    found = {f"target.{name}": like(weight) for name, weight in session.target.state_dict().items()}
    found["corpus.tokens"] = like(session.corpus.tokens)
    found |= {f"masters.{name}": like(weight) for name, weight in masters}
    for drafter in range(len(layout.drafters)):
        for target in range(len(layout.targets)):
            for place in range(config.layout.queue_depth):
                found[f"taps.{target}.{drafter}.{place}"] = taps
        for place in range(GRAD_PLACES):
            found |= {f"grads.{drafter}.{place}.{name}": (torch.float32, tuple(w.shape)) for name, w in masters}
    return found


def _laid_out(plan: Plan) -> Iterator[tuple[int, str, str, list[int]]]:
    at = 0
    for name, dtype, shape in plan:
        yield at, name, dtype, shape
        size = math.prod(shape) * getattr(torch, dtype).itemsize
        at += -(-size // ALIGN_BYTES) * ALIGN_BYTES


def _size_bytes(plan: Plan) -> int:
    end = [("", "uint8", [0])]
    return max(mmap.PAGESIZE, [at for at, *_ in _laid_out([*plan, *end])][-1])
