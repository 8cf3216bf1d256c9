"""The exit codes, their exceptions, and which code an exception means.

The codes are a contract with whatever started the trainer, so they are in this one place.
Torch is recognised by class name: this module must not cost its import.
"""

from __future__ import annotations

import signal

OK = 0
CONFIG = 64  # the configuration is wrong: never worth a retry
DATA = 65  # an input file is missing or unusable
BUG = 70  # an exception of ours
OUT_OF_MEMORY = 73  # device memory
IO = 74  # disk full, read-only, stale handle
TRY_AGAIN = 75  # a remote service did not answer
NON_FINITE = 76  # no finite gradient for several steps in a row
FENCED = 77  # a later attempt owns the output folder
RACE = 78  # a recompile after warm-up, or the FX tracing race
STALLED = 79  # nothing moved for longer than the limit, seen from inside
DEVICE = 80  # accelerator or NCCL
INTERRUPTED = 130  # Ctrl-C by the person at the keyboard; nothing is saved
STOPPED = 143  # asked to stop, checkpoint saved

MEANING: dict[int, str] = {
    OK: "done",
    CONFIG: "configuration",
    DATA: "data",
    BUG: "uncaught exception",
    OUT_OF_MEMORY: "out of device memory",
    IO: "input/output",
    TRY_AGAIN: "try again",
    NON_FINITE: "non-finite gradients",
    FENCED: "a later attempt owns the folder",
    RACE: "recompile or tracing race",
    STALLED: "a worker stalled",
    DEVICE: "device or NCCL",
    INTERRUPTED: "interrupted",
    STOPPED: "stopped when asked",
}

FX_RACE_TEXT = "using FX to symbolically trace a dynamo-optimized function"
_RECOMPILE_CLASSES = frozenset({"RecompileError", "RecompileLimitExceeded", "FailOnRecompileLimitHit"})
_DEVICE_CLASSES = frozenset({"AcceleratorError", "DistBackendError", "DistNetworkError", "DistStoreError"})
_DEVICE_TEXTS = ("CUDA error", "CUBLAS_STATUS", "cuDNN error", "NCCL error")


class ClosedError(Exception):
    """The run is over; a worker leaves its loop. Not an error of anybody's."""


class TrainerError(Exception):
    """An end with a code of its own; the message is one sentence for the person who reads the log."""

    code = BUG


class ConfigError(TrainerError):
    """The user's mistake: file, key and what to do."""

    code = CONFIG


class DataError(TrainerError):
    """An input is missing or unusable."""

    code = DATA


class NonFiniteError(TrainerError):
    """Gradients stayed non-finite; the message names the tensor."""

    code = NON_FINITE


class FencedError(TrainerError):
    """A later attempt, or another living run, owns the output folder."""

    code = FENCED


class StalledError(TrainerError):
    """Nothing moved for longer than the limit."""

    code = STALLED


class StoppedError(TrainerError):
    """SIGTERM arrived; raised only at a point where the state is whole."""

    code = STOPPED


class WorkerLostError(TrainerError):
    """A worker ended without an exception and without finishing, or its process was killed."""

    code = BUG


class RemoteError(TrainerError):
    """An exception in a worker process: its code and its words travelled, the object did not."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


class WorkerFailedError(TrainerError):
    """A worker's exception, whose traceback is printed; the code is that exception's."""

    def __init__(self, worker: str, error: BaseException) -> None:
        super().__init__(f"{worker}: {in_words(error)}")
        self.code = code_of(error)


def in_words(error: BaseException) -> str:
    """Class and message, as the last line of a traceback has them."""
    return str(error) if isinstance(error, RemoteError) else f"{type(error).__name__}: {error}"


def code_of(error: BaseException) -> int:
    """The exit code that an exception stands for."""
    if isinstance(error, TrainerError):
        return error.code
    names = {cls.__name__ for cls in type(error).__mro__}
    text = str(error)
    if "OutOfMemoryError" in names:
        return OUT_OF_MEMORY
    if FX_RACE_TEXT in text or names & _RECOMPILE_CLASSES or "fail_on_recompile" in text:
        return RACE
    if names & _DEVICE_CLASSES or any(part in text for part in _DEVICE_TEXTS):
        return DEVICE
    if isinstance(error, ConnectionError):
        return TRY_AGAIN
    if isinstance(error, OSError):
        return IO
    return BUG


def how_it_ended(name: str, pid: int, code: int | None) -> str:
    """In the words of launchers, which whoever reads logs knows already."""
    who = f"{name} (pid {pid})"
    if code is None:
        return f"{who} closed its way to the loop and does not end"
    if code < 0:
        return f"{who} terminated with signal {signal.Signals(-code).name}"
    if code > 0:
        return f"{who} terminated with code {code} and without an exception"
    return f"{name} ended without finishing and without an exception"
