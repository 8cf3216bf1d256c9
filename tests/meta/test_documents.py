"""The documents that are written from the code are current, and name what there is."""

from __future__ import annotations

from pathlib import Path

from dflash_supervise.cli.main import VERBS
from tests.meta.causes_table import TABLE, table

ROOT = Path(__file__).parents[2]


def test_the_table_of_causes_is_current() -> None:
    assert TABLE.read_text() == table(), "run python -m tests.meta.causes_table"


def test_every_verb_stands_in_the_changelog() -> None:
    written = (ROOT / "CHANGELOG.md").read_text()
    assert [
        name for _section, name, _summary in VERBS if f"`{name}`" not in written and f" {name} " not in written
    ] == []
