"""The whole demo, as a person runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.cli.program import run


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_demo_trains_breaks_names_cures_and_leaves_nothing(isolated_home: Path) -> None:
    ran = run("demo", "--json", limit_s=360)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["ok"] is True and document["missing"] == []
    story = document["story"]
    losses, taus = [loss for _step, loss in story["losses"]], [tau for _step, tau in story["taus"]]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert taus[-1] >= 2.5 * taus[0] and story["identical"] == "6/6"
    assert [cure["cause"] for cure in story["cures"]] == ["rank_exception", "lock_deadlock"]
    assert "http://127.0.0.1:" in ran.stderr and "/login?token=" in ran.stderr
    assert "THE LIMITS ARE SHORTENED" in ran.stderr
    place = re.search(r"/tmp/dflash-demo-\w+", ran.stderr)
    assert place is not None and not Path(place.group()).exists()
