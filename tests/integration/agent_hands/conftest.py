from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Laboratory
from tests.integration.agent_hands.bench import Bench


@pytest.fixture
def bench(laboratory: Laboratory) -> Iterator[Bench]:
    root = laboratory.root / "bench"
    root.mkdir(mode=0o700)
    bench = Bench(root)
    try:
        yield bench
    finally:
        bench.finish()
