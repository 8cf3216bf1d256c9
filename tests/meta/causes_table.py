"""Write docs/causes.md from the catalogue: ``python -m tests.meta.causes_table``."""

from __future__ import annotations

from pathlib import Path

from dflash_supervise.core import causes
from dflash_supervise.core.catalogue import CATALOGUE, Cause

TABLE = Path(__file__).parents[2] / "docs" / "causes.md"
_HEAD = """# Causes

What a run can die or stall of, and what is harmless by itself, root-most first: of two causes in one log the upper one
is nearer to the root. Written by `python -m tests.meta.causes_table` from `supervisor/dflash_supervise/core/catalogue`.

| cause | is | to blame | then | restarts | before the first step | remedy | what a person does |
|---|---|---|---|---|---|---|---|
"""


def table() -> str:
    """The text of docs/causes.md."""
    return _HEAD + "".join(_row(cause) for cause in CATALOGUE)


def _row(cause: Cause) -> str:
    most = "by the policy" if cause.max_restarts is None else str(cause.max_restarts)
    restarts = most if cause.action in (causes.RESTART, causes.AFTER_CLEANUP) else "-"
    early = "tried again" if restarts != "-" and cause.before_step else "-"
    remedy = (cause.remedy or "-").replace("_", " ")
    cells = (
        f"`{cause.slug}`",
        cause.title,
        cause.blame,
        f"`{cause.action}`",
        restarts,
        early,
        remedy,
        cause.advice or "-",
    )
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    TABLE.write_text(table())
