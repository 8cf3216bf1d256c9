"""One product a test: daemon, host over SSH (with GPUs where the test asks for `fake_gpus`), Slack on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.product import Product
from tests.e2e.slack import SlackReceiver
from tests.lab.sshd import Sshd


@pytest.fixture(scope="session")
def target_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small target is trained once for all tests."""
    return tmp_path_factory.mktemp("targets")


@pytest.fixture
def slack() -> Iterator[SlackReceiver]:
    receiver = SlackReceiver()
    yield receiver
    receiver.close()


@pytest.fixture
def product(
    isolated_home: Path, workspace: Path, sshd: Sshd, target_cache: Path, slack: SlackReceiver
) -> Iterator[Product]:
    made = Product(isolated_home, workspace, target_cache, slack.url)
    yield made
    made.close()
