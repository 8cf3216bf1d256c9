from __future__ import annotations

import pytest

from dflash_trainer import remedies
from dflash_trainer.config_load import load


def test_process_workers_replace_threads_and_whatever_mitigates_their_races(capsys: pytest.CaptureFixture[str]) -> None:
    got = remedies.applied(load(None, ["layout.race_mitigation=none"]), "another_port, process_workers")
    assert (got.layout.workers, got.layout.race_mitigation) == ("processes", "full")
    assert "process_workers: workers=processes instead of threads" in capsys.readouterr().out


@pytest.mark.parametrize("asked", ["", "another_port", "process_worker"])
def test_what_is_not_for_the_trainer_changes_nothing(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = load(None)
    assert remedies.applied(config, asked) is config
    assert capsys.readouterr().out == ""
