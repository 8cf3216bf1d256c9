"""Faults on demand, so that what watches the trainer can be tested against the real thing.

    DFLASH_FAULT=kind@step[:attempts][,kind@step...]

`step` is the step during which it happens. It happens in attempt 1 only; `:3` means in attempt 3 and `:*`
in every attempt: a restarted attempt comes by the same step again, and would otherwise die there for ever.
`import-error` happens at start and needs no step.

In one drafter worker: exception (RuntimeError), keyerror, oom (out of device memory), fx-race, segfault,
thread-exit (ends without a word), nan (from that step on), hang-one (waits on a lock for ever).
In every drafter worker: hang-lock.
In the training loop: sigkill, stop (SIGSTOP), exit0 (ends with 0 and no done.json), hang-hard (the loop itself
waits on a lock, so SIGTERM has no effect), disk-full, slow (half a second more a step from then on).
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import re
import signal
import threading
from dataclasses import dataclass

from dflash_trainer import log
from dflash_trainer.exits import FX_RACE_TEXT, ConfigError

IN_LOOP = frozenset({"sigkill", "stop", "exit0", "hang-hard", "disk-full", "slow"})
IN_WORKER = frozenset(
    {"exception", "keyerror", "oom", "fx-race", "segfault", "thread-exit", "nan", "hang-one", "hang-lock"}
)
AT_START = frozenset({"import-error"})
SLOW_S = 0.5

_FORM = re.compile(r"(?P<kind>[a-z0-9-]+)(@(?P<step>\d+))?(:(?P<attempt>\d+|\*))?")


@dataclass(frozen=True, slots=True)
class Fault:
    """step None: at start; attempt None: every attempt."""

    kind: str
    step: int | None
    attempt: int | None = 1


def parse(text: str) -> tuple[Fault, ...]:
    """Read DFLASH_FAULT.

    Raises:
        ConfigError: an unknown kind, or a step missing.
    """
    return tuple(_parse_one(part.strip()) for part in text.split(",") if part.strip())


def of_attempt(faults: tuple[Fault, ...], attempt: int) -> tuple[Fault, ...]:
    return tuple(fault for fault in faults if fault.attempt in (None, attempt))


def at_start(faults: tuple[Fault, ...]) -> None:
    if any(fault.kind == "import-error" for fault in faults):
        importlib.import_module("dflash_flash_kernels")  # a distribution that nobody has


def in_loop(faults: tuple[Fault, ...], step: int) -> None:
    """Called by the training loop at the start of each step."""
    for fault in faults:
        if fault.step is None or fault.kind not in IN_LOOP:
            continue
        if fault.kind == "slow" and step >= fault.step:
            threading.Event().wait(SLOW_S)
        elif fault.step == step:
            _announce(fault, step)
            _loop_fault(fault.kind)


def in_worker(faults: tuple[Fault, ...], step: int, *, chosen: bool) -> bool:
    """Called by each drafter worker before each micro-batch; True asks for non-finite gradients.

    Args:
        chosen: this worker is the one that single-worker faults happen in.
    """
    poison = False
    for fault in faults:
        if fault.step is None or fault.kind not in IN_WORKER:
            continue
        if fault.kind == "nan":
            poison = poison or (chosen and step >= fault.step)
        elif fault.step == step and (chosen or fault.kind == "hang-lock"):
            _announce(fault, step)
            _worker_fault(fault.kind, step)
    return poison


def _loop_fault(kind: str) -> None:
    if kind == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "exit0":
        log.flush()
        os._exit(0)
    elif kind == "disk-full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    elif kind == "hang-hard":
        _wait_on_a_lock_for_ever()


def _worker_fault(kind: str, step: int) -> None:
    if kind == "exception":
        raise RuntimeError(f"injected fault in step {step}")
    if kind == "keyerror":
        raise KeyError("anchor_positions")
    if kind == "oom":
        import torch

        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.80 GiB of which "
            "1.02 GiB is free. Process has 138.77 GiB memory in use. Of the allocated memory 134.20 GiB is "
            "allocated by PyTorch, and 2.11 GiB is reserved by PyTorch but unallocated."
        )
    if kind == "fx-race":
        raise RuntimeError(f"Detected that you are {FX_RACE_TEXT}. This is not supported at the moment.")
    if kind == "segfault":
        ctypes.string_at(0)
    if kind == "thread-exit":
        raise SystemExit
    if kind in ("hang-one", "hang-lock"):
        _wait_on_a_lock_for_ever()


def _wait_on_a_lock_for_ever() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _announce(fault: Fault, step: int) -> None:
    log.warning("fault", f"injecting={fault.kind} step={step}")
    log.flush()


def _parse_one(part: str) -> Fault:
    match = _FORM.fullmatch(part)
    kinds = sorted(IN_LOOP | IN_WORKER | AT_START)
    if match is None or match["kind"] not in kinds:
        raise ConfigError(f"DFLASH_FAULT={part!r}: want kind@step[:attempt] with kind one of {', '.join(kinds)}")
    if match["step"] is None and match["kind"] not in AT_START:
        raise ConfigError(f"DFLASH_FAULT={part!r}: {match['kind']} needs a step, such as {match['kind']}@20")
    number = match["attempt"]
    attempt = 1 if number is None else None if number == "*" else int(number)
    return Fault(match["kind"], None if match["step"] is None else int(match["step"]), attempt)
