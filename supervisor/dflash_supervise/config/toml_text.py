"""TOML as text to a document that can be walked, shown and handed on as JSON."""

from __future__ import annotations

import tomllib
from typing import Any

_MOST_DEPTH = 32  # far beyond any key of ours, and far from Python's own limit
_MOST_BITS = 4096  # Python refuses to write numbers of more than 4300 digits


def parse(text: str) -> dict[str, Any]:
    """The document.

    Raises:
        ValueError: it is none that we take; the words go behind the file's name.
    """
    try:
        document = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:  # beside tomllib's own: a number of too many digits
        raise ValueError(f"is not TOML: {error}") from error
    level: list[Any] = [document]
    for _ in range(_MOST_DEPTH):
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        if any(isinstance(item, int) and item.bit_length() > _MOST_BITS for item in level):
            raise ValueError("holds a number of too many digits")
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return document
    raise ValueError("is nested too deeply")
