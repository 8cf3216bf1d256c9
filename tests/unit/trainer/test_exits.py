from __future__ import annotations

import errno

import pytest
import torch

from dflash_trainer import exits


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exits.ConfigError("x"), 64),
        (exits.DataError("x"), 65),
        (ValueError("x"), 70),
        (ModuleNotFoundError("x"), 70),
        (torch.OutOfMemoryError("CUDA out of memory"), 73),
        (OSError(errno.ENOSPC, "No space left on device"), 74),
        (ConnectionResetError("x"), 75),
        (exits.NonFiniteError("x"), 76),
        (exits.FencedError("x"), 77),
        (RuntimeError(f"Detected that you are {exits.FX_RACE_TEXT}."), 78),
        (torch._dynamo.exc.RecompileError("x"), 78),
        (RuntimeError("Detected recompile when torch.compile stance is 'fail_on_recompile'."), 78),
        (exits.StalledError("x"), 79),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), 80),
        (torch.AcceleratorError("device-side assert triggered"), 80),
        (exits.StoppedError("x"), 143),
        (exits.WorkerFailedError("drafter-0", torch.OutOfMemoryError("x")), 73),
        (exits.WorkerFailedError("drafter-0", KeyError("x")), 70),
        (exits.WorkerFailedError("drafter-0", exits.RemoteError("torch.OutOfMemoryError: x", 73)), 73),
    ],
)
def test_an_error_has_the_code_of_the_contract(error: BaseException, code: int) -> None:
    assert exits.code_of(error) == code
    assert code in exits.MEANING


def test_another_process_s_exception_reads_like_our_own() -> None:
    here = exits.WorkerFailedError("drafter-0", KeyError("x"))
    there = exits.WorkerFailedError("drafter-0", exits.RemoteError(exits.in_words(KeyError("x")), 70))
    assert str(here) == str(there) == "drafter-0: KeyError: 'x'"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "drafter-1 (pid 7) terminated with signal SIGKILL"),
        (-11, "drafter-1 (pid 7) terminated with signal SIGSEGV"),
        (3, "drafter-1 (pid 7) terminated with code 3 and without an exception"),
        (0, "drafter-1 ended without finishing and without an exception"),
        (None, "drafter-1 (pid 7) closed its way to the loop and does not end"),
    ],
)
def test_the_end_of_a_process_is_told_by_name_and_signal(code: int | None, words: str) -> None:
    assert exits.how_it_ended("drafter-1", 7, code) == words
