"""Makes log text safe to show on a terminal.

A training log is written by whatever ran on the host: it may set titles, move the cursor, write the clipboard or
reorder what a person reads. What is left here is text, tabs and a short list of colours.
"""

from __future__ import annotations

import re
from typing import Any

# A string sequence (OSC, DCS, SOS, PM, APC) ends at BEL, ST or the end of the line; it never hides the next line.
_STRING = re.compile(r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x9c\x1b\n]*(?:\x07|\x9c|\x1b\\)?")
_CSI = re.compile(r"(?:\x1b\[|\x9b)([0-9:;<=>?]*)([ -/]*)([@-~])?")
_ESCAPE = re.compile(r"\x1b[ -/]*[0-~]?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Reordering and invisible separators: what is read must be what is there (CVE-2021-42574).
_BIDI = re.compile("[\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Bold, dim, italic, underline and the sixteen foreground colours; no background, no concealed text, no blinking.
_ALLOWED_SGR = frozenset(
    ["", "0", "1", "2", "3", "4", "22", "23", "24", "39", *map(str, range(30, 38)), *map(str, range(90, 98))]
)
_RESET = "\x1b[0m"


def line(text: str, *, colour: bool = False) -> str:
    """One line without its line end, safe to print; allowed colours stay when colour is True and end with the line.

    A carriage return inside the line discards what stood before it, as a terminal would show it.
    """
    text = _after_carriage_return(text)
    kept = False

    def sgr(match: re.Match[str]) -> str:
        nonlocal kept
        parameters, between, final = match.groups()
        if not colour or final != "m" or between:
            return ""
        if not all(p in _ALLOWED_SGR for p in parameters.split(";")):
            return ""
        kept = True
        return f"\x00{parameters}\x01"  # placeholders outlive the control characters' removal below

    text = _STRING.sub("", text.replace("\x00", "").replace("\x01", ""))
    text = _CSI.sub(sgr, text)
    parts = re.split("\x00([0-9;]*)\x01", text)
    text = "".join(
        f"\x1b[{part}m" if i % 2 else _BIDI.sub("", _CONTROL.sub("", _ESCAPE.sub("", part)))
        for i, part in enumerate(parts)
    )
    return text + _RESET if kept else text


def document(value: Any) -> Any:
    """The same JSON document with every string made safe: sentences and key lines quote the log."""
    if isinstance(value, str):
        return "\n".join(line(part) for part in value.split("\n"))
    if isinstance(value, dict):
        return {line(str(key)): document(item) for key, item in value.items()}
    if isinstance(value, list):
        return [document(item) for item in value]
    return value


class Lines:
    """Cuts a stream of text into whole lines; the unfinished one is held back in ``partial``."""

    def __init__(self, *, limit_chars: int = 1 << 20) -> None:
        self.partial = ""
        self._limit_chars = limit_chars

    def feed(self, text: str) -> list[str]:
        """Whole lines that this text completes, without their line ends."""
        *whole, rest = (self.partial + text).split("\n")
        # A progress bar redraws one line for hours: only its newest state is worth holding.
        self.partial = _newest_redraw(rest)[-self._limit_chars :]
        return whole


def _after_carriage_return(text: str) -> str:
    return text.rstrip("\r").rpartition("\r")[2]


def _newest_redraw(text: str) -> str:
    """Keep the last redraw, and a trailing carriage return, whose line feed may still come."""
    body = text.rstrip("\r")
    return body.rpartition("\r")[2] + text[len(body) :]
