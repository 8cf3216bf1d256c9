"""The trainer goes to a host once, whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_supervise.link import HostLink, HostTarget, push_trainer
from dflash_supervise.link.bundle import Bundle, pack
from tests.integration.link.harness import WAIT_S


@pytest.fixture
def bundle() -> Bundle:
    noise = bytes(range(256)) * 1600
    return pack("trainer", {"dflash_trainer/__init__.py": b"", "dflash_trainer/big.py": noise})


@pytest.mark.parametrize("where", ["gpubox", "here"])
def test_the_trainer_is_pushed_in_pieces_and_only_when_missing(
    request: pytest.FixtureRequest, where: str, open_link: Callable[..., HostLink], workspace: Path, bundle: Bundle
) -> None:
    target = request.getfixturevalue(where)
    assert isinstance(target, HostTarget)
    link = open_link(target)
    link.wait_ready(WAIT_S)
    assert push_trainer(link, str(workspace), bundle) == bundle.hash
    assert (workspace / "trainer.zip").read_bytes() == bundle.data
    offsets = [int(line) for line in (workspace / "puts").read_text().split()]
    assert offsets == list(range(0, len(bundle.data), 96 * 1024)) and len(offsets) > 2
    assert push_trainer(link, str(workspace), bundle) == bundle.hash
    assert len((workspace / "puts").read_text().split()) == len(offsets)
