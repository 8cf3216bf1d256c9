from __future__ import annotations

import errno

import pytest
import torch

from dflash_trainer import exits, faults
from dflash_trainer.exits import ConfigError
from dflash_trainer.faults import Fault


def test_a_fault_belongs_to_the_first_attempt_unless_it_says_otherwise() -> None:
    parsed = faults.parse("exception@20, hang-lock@40:2,nan@5:*,import-error")
    assert parsed == (
        Fault("exception", 20, 1),
        Fault("hang-lock", 40, 2),
        Fault("nan", 5, None),
        Fault("import-error", None, 1),
    )
    assert [fault.kind for fault in faults.of_attempt(parsed, 2)] == ["hang-lock", "nan"]


@pytest.mark.parametrize("text", ["boom@3", "exception", "exception@x", "exception@3:x", "@3"])
def test_a_fault_that_cannot_happen_is_refused_with_the_kinds_that_can(text: str) -> None:
    with pytest.raises(ConfigError, match=r"want kind@step|needs a step"):
        faults.parse(text)


@pytest.mark.parametrize(
    ("kind", "error", "code"),
    [
        ("exception", RuntimeError, exits.BUG),
        ("keyerror", KeyError, exits.BUG),
        ("oom", torch.OutOfMemoryError, exits.OUT_OF_MEMORY),
        ("fx-race", RuntimeError, exits.RACE),
        ("thread-exit", SystemExit, exits.BUG),
    ],
)
def test_a_worker_fault_hits_the_chosen_worker_in_its_step_alone(
    kind: str, error: type[BaseException], code: int
) -> None:
    injected = faults.parse(f"{kind}@4")
    assert not faults.in_worker(injected, 3, chosen=True)
    assert not faults.in_worker(injected, 4, chosen=False)
    assert not faults.in_worker(injected, 5, chosen=True)
    with pytest.raises(error) as caught:
        faults.in_worker(injected, 4, chosen=True)
    assert exits.code_of(caught.value) == code


def test_nan_poisons_from_its_step_on() -> None:
    injected = faults.parse("nan@4")
    assert [faults.in_worker(injected, step, chosen=True) for step in (3, 4, 5)] == [False, True, True]


def test_loop_faults_leave_workers_alone_and_the_other_way_round() -> None:
    with pytest.raises(OSError) as caught:
        faults.in_loop(faults.parse("disk-full@2"), 2)
    assert caught.value.errno == errno.ENOSPC
    assert not faults.in_worker(faults.parse("disk-full@2"), 2, chosen=True)
    faults.in_loop(faults.parse("exception@2"), 2)
