"""One line of a log: cut, cleaned of what a terminal would swallow, and told apart by who wrote it."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

LINE_BYTES = 8192

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What stands before a line: torchrun and its --tee, Lightning, mpirun, srun --label, a collector's time, Ray.
_PREFIX = re.compile(
    r"(?:\[(?:rank|default|Rank)?[ :]{0,2}(?P<a>\d+)\]:? ?"
    r"|\[\d+,(?P<b>\d+)\]<std(?:err|out)>: ?"
    r"|(?P<c>\d{1,4}): (?=\S| {2})"
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z "
    r"|\((?P<d>[A-Za-z_][\w.]* (?:pid|rank)=\d+)(?:, ip=[\d.]+)?\) ?)"
)


class Written(NamedTuple):
    """Who wrote a line, and what."""

    stream: str  # lines of one stream belong together
    rank: Optional[str]
    text: str


def reduced(raw: bytes) -> bytes:
    """The part of an unfinished line that can still count: its last carriage-return segment, cut to 8 KiB.

    ``reduced(reduced(a) + b) == reduced(a + b)`` for any cut, so a line of any length needs constant memory.
    """
    if b"\r" not in raw:
        return raw[:LINE_BYTES]
    returned = b"\r" if raw.endswith(b"\r") else b""
    return raw.rstrip(b"\r").rsplit(b"\r", 1)[-1][:LINE_BYTES] + returned


def clean(raw: bytes) -> str:
    """The text of a line as a terminal would show it."""
    text = reduced(raw).rstrip(b"\r").decode("utf-8", "replace").replace("\x00", "")
    return _ANSI.sub("", text) if "\x1b" in text else text


def written(line: str) -> Written:
    """Part a clean line from what its launcher put before it. At most two prefixes are nested."""
    rank: Optional[str] = None
    stream = ""
    for _ in range(2):
        if line[:1] not in "[(0123456789":
            break
        found = _PREFIX.match(line)
        if found is None:
            break
        rank = found.group("a") or found.group("b") or found.group("c") or rank
        stream = found.group("d") or rank or stream
        line = line[found.end() :] or " "
    return Written(stream, rank, line)
