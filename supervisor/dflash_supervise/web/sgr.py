"""Log text as HTML. A log is hostile: whoever writes to it must not steer the reader's screen.

Everything is escaped first; of the terminal's sequences only colours and weights survive, as class names from a fixed
list. Operating-system commands (titles, links, clipboard), device control strings, other controls and bidirectional
overrides are dropped. ECMA-48 names the sequences; CVE-2021-42574 is why the overrides go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

# A string sequence ends at BEL or ST; an unterminated one ends with its line, so that it cannot swallow what follows.
_STRING = r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
_CSI = r"(?:\x1b\[|\x9b)(?P<params>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~]?)"
_OTHER_ESCAPE = r"\x1b[ -/]*[0-Z\\^-~]?"
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_INVISIBLE = "[\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
_TOKEN = re.compile("|".join((_STRING, _CSI, _OTHER_ESCAPE, _CONTROL, _INVISIBLE)))

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


@dataclass(frozen=True)
class _Look:
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    colour: str = ""

    def classes(self) -> str:
        names = [
            name for name, on in (("b", self.bold), ("dim", self.dim), ("i", self.italic), ("u", self.underline)) if on
        ]
        return " ".join([*names, f"c-{self.colour}"] if self.colour else names)


def lines_html(text: str) -> list[Markup]:
    """One safe fragment a line. What a carriage return overwrote is gone, as on a terminal."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line_html(line) for line in lines]


def line_html(line: str) -> Markup:
    """One line, escaped, its colours as ``<span class>``; looks do not leak into the next line."""
    out: list[str] = []
    look = _Look()
    at = 0
    line = _after_last_return(line)
    for match in _TOKEN.finditer(line):
        _emit(out, line[at : match.start()], look)
        at = match.end()
        if match["final"] == "m" and not match["between"]:
            look = _apply(look, match["params"])
    _emit(out, line[at:], look)
    return Markup("".join(out))


def plain(line: str) -> str:
    """The same line without any sequence, for titles and for text comparison."""
    return _TOKEN.sub("", _after_last_return(line))


def _after_last_return(line: str) -> str:
    kept = [piece for piece in line.split("\r") if piece]
    return kept[-1] if kept else ""


def _emit(out: list[str], text: str, look: _Look) -> None:
    if not text:
        return
    classes = look.classes()
    safe = str(escape(text))
    out.append(f'<span class="{classes}">{safe}</span>' if classes else safe)


def _apply(look: _Look, params: str) -> _Look:
    if not re.fullmatch(r"[0-9;:]*", params):
        return look
    codes = [int(code[:4]) if code else 0 for code in re.split("[;:]", params)]
    while codes:
        code = codes.pop(0)
        if code in (38, 48, 58):  # extended colours carry their arguments along
            look = _extended(look, code, codes)
        else:
            look = _simple(look, code)
    return look


def _extended(look: _Look, code: int, rest: list[int]) -> _Look:
    mode = rest.pop(0) if rest else 0
    taken = rest[: {5: 1, 2: 3}.get(mode, 0)]
    del rest[: len(taken)]
    if code == 38 and mode == 5 and taken and taken[0] < 16:
        return replace(look, colour=_COLOURS[taken[0] % 8])
    return look


def _simple(look: _Look, code: int) -> _Look:
    if code == 0:
        return _Look()
    if 30 <= code <= 37 or 90 <= code <= 97:
        return replace(look, colour=_COLOURS[code % 10])
    changes: dict[int, dict[str, bool | str]] = {
        1: {"bold": True},
        2: {"dim": True},
        3: {"italic": True},
        4: {"underline": True},
        22: {"bold": False, "dim": False},
        23: {"italic": False},
        24: {"underline": False},
        39: {"colour": ""},
    }
    return replace(look, **changes.get(code, {}))  # type: ignore[arg-type]
