"""Stdout is data, stderr is talk: the only place that writes to either."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from dataclasses import dataclass
from typing import Any, TextIO

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36", "bold": "1", "dim": "2"}
_ERASE_LINE = "\r\x1b[2K"

# Signs of which a plain terminal has a plainer form.
_PLAIN = str.maketrans(
    {
        "\u2716": "x",
        "\u2717": "x",
        "\u2713": "+",
        "\u2714": "+",
        "\u25cf": "*",
        "\u25cc": "o",
        "\u25b2": "!",
        "\u25a0": "#",
        "\u2500": "-",
        "\u00b7": ".",
        "\u2588": "#",
        "\u2585": "=",
        "\u2592": "~",
        "\u2581": "_",
        "\u2591": ".",
        "\u2192": "->",
    }
)


@dataclass(frozen=True)
class Style:
    """How text may look on one stream."""

    colour: bool
    width: int = 80  # columns

    def paint(self, text: str, *names: str) -> str:
        if not self.colour or not names or not text:
            return text
        return f"\x1b[{';'.join(_COLOURS[name] for name in names)}m{text}\x1b[0m"

    def wrap(self, text: str, indent: int = 0) -> list[str]:
        """The text as lines that fit, each indented."""
        pad = " " * indent
        return textwrap.wrap(text, self.width, initial_indent=pad, subsequent_indent=pad, break_on_hyphens=False) or [
            ""
        ]

    def rule(self) -> str:
        return self.paint("\u2500" * self.width, "dim")


PLAIN = Style(colour=False)


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def style_of(stream: TextIO) -> Style:
    """Colour only on a terminal, and never against NO_COLOR (no-color.org) or a dumb terminal."""
    terminal = is_terminal(stream)
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    columns = shutil.get_terminal_size((80, 24)).columns if terminal else 80
    return Style(colour=colour, width=max(40, min(columns, 100)))


def stdout_style() -> Style:
    return style_of(sys.stdout)


def stderr_style() -> Style:
    return style_of(sys.stderr)


def data(text: str) -> None:
    """Lines for stdout."""
    _write(sys.stdout, text + "\n")


def raw(text: str) -> None:
    """Text as it is, without a line end of ours."""
    _write(sys.stdout, text)


def stdout_is_terminal() -> bool:
    return is_terminal(sys.stdout)


def stdin_is_terminal() -> bool:
    return is_terminal(sys.stdin)


def stderr_is_terminal() -> bool:
    return is_terminal(sys.stderr)


def document(value: Any) -> None:
    """One JSON document for stdout; escaped, so hostile text in it cannot reach the terminal."""
    _write(sys.stdout, json.dumps(value, indent=2, sort_keys=False) + "\n")


def document_line(value: Any) -> None:
    """One JSON document on a line of its own, for a stream."""
    _write(sys.stdout, json.dumps(value, separators=(",", ":")) + "\n")


def talk(text: str = "") -> None:
    """A line for the person at the terminal."""
    _write(sys.stderr, text + "\n")


def error(message: str, fix: str = "") -> None:
    """The message, then the way out."""
    style = stderr_style()
    talk(style.paint("error:", "red", "bold") + " " + message)
    if fix:
        talk(style.paint("fix:", "bold") + "   " + fix)


class StatusLine:
    """One line on stderr that is redrawn on a terminal; elsewhere only what ``log`` says is printed."""

    def __init__(self) -> None:
        self.live = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        if self.live:
            width = shutil.get_terminal_size((80, 24)).columns - 1
            _write(sys.stderr, _ERASE_LINE + text[:width])
            self._shown = True

    def log(self, text: str) -> None:
        self.clear()
        talk(text)

    def clear(self) -> None:
        if self._shown:
            _write(sys.stderr, _ERASE_LINE)
            self._shown = False


def _write(stream: TextIO, text: str) -> None:
    if not _speaks_unicode(stream):
        text = text.translate(_PLAIN)
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode(stream.encoding or "ascii", "replace").decode(stream.encoding or "ascii"))
    stream.flush()


def _speaks_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "ascii").lower().replace("-", "").startswith("utf")
