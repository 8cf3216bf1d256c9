"""Names of runs: from what a person typed to an id that nobody else has."""

from __future__ import annotations

import datetime as dt
import posixpath
import re

MAX_NAME = 40


def run_name(given: str | None, workspace: str) -> str:
    """The name as given, or one made of the workspace's last folder.

    Raises:
        ValueError: a given name with other characters than ``[a-z0-9_-]``, or too long.
    """
    if given is not None:
        if not re.fullmatch(rf"[a-z0-9][a-z0-9_-]{{0,{MAX_NAME - 1}}}", given):
            raise ValueError(
                f"name {given!r}: use lower-case letters, digits, _ and -, at most {MAX_NAME}, a letter or digit first"
            )
        return given
    made = re.sub(r"[^a-z0-9_-]+", "-", posixpath.basename(workspace).lower()).strip("-_")[:MAX_NAME]
    return made or "run"


def run_id(name: str, now: float, suffix: str) -> str:
    """``<name>-<utc yymmddhhmm>-<4 hex>``."""
    stamp = dt.datetime.fromtimestamp(now, dt.UTC).strftime("%y%m%d%H%M")
    return f"{name}-{stamp}-{suffix}"


def free_name(name: str, taken: frozenset[str]) -> str:
    """The name, or the first of name-2, name-3, ... that no run which is not over has."""
    if name not in taken:
        return name
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"
