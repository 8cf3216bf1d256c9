from __future__ import annotations

import json

import pytest

from tests.integration.trainer.conftest import Launch


@pytest.mark.timeout(300)
def test_the_default_run_trains_a_target_and_a_drafter_that_is_accepted(launch: Launch) -> None:
    """Nothing configured, nothing cached: loss falls, acceptance at least 2.5 times its start, output identical."""
    trainer = launch(preset=None)
    assert trainer.process.wait(280) == 0, trainer.log()
    done = trainer.done()
    assert done is not None
    start, end = done["tau_start"], done["tau"]
    assert isinstance(start, float) and isinstance(end, float)
    assert end >= 2.5 * start
    assert done["identical"] == done["prompts"] == 6
    losses = [loss for step in sorted(trainer.losses()) for loss in trainer.losses()[step] if loss is not None]
    assert sum(losses[-10:]) < 0.6 * sum(losses[:10])
    lines = (trainer.output / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["final"] is True
