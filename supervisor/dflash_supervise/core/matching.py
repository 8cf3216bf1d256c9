"""Which cause a line speaks of, by the catalogue's patterns, at the speed of a log.

A line is seen without its digits. Each pattern has a word that every line it matches contains as a whole, so one look
at the words of a line tells the few patterns that are worth trying, mostly none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, List, Optional, Pattern, Sequence, Tuple

from .catalogue import CATALOGUE, Cause

DIGITS = str.maketrans("", "", "0123456789")
_EDGE = "\n"
# Words that stand in many lines are worth less as a key than any other.
_COMMON = (
    *("the", "not", "can", "to", "is", "of", "in", "on", "for", "no", "or", "such", "file", "data", "python"),
    *("start", "unknown", "library", "error", "errors", "write", "writing", "limit", "event", "used"),
)
_LETTERS = bytes(range(ord("a"), ord("z") + 1))
# Letters in lower case, everything else a space.
_TABLE = bytes(code if code in _LETTERS else 32 for code in bytes(range(256)).lower())


def words_of(line: bytes) -> List[bytes]:
    """The words of a line without its digits, in lower case; whatever is no letter parts them."""
    return line.translate(_TABLE).split()


def key_of(pattern: str) -> str:
    """The longest word that stands whole in every line the pattern matches; no alternatives outside of groups.

    Raises:
        ValueError: there is none; put it between word boundaries.
    """
    pieces = re.findall(r"\\.|\[(?:[^\]\\]|\\.)*\]|.", pattern)
    runs, depth = [_EDGE], 0
    for piece, following in zip(pieces, [*pieces[1:], ""]):
        depth += (piece == "(") - (piece == ")")
        if depth == 0 and piece in ("\\b", "^", "$"):
            runs[-1] += _EDGE
            continue
        plain = "" if depth else _plain(piece)
        if not plain or following in ("?", "*"):
            runs.append("")
        else:
            runs[-1] += plain
    runs[-1] += _EDGE
    found = [word for run in runs for word in re.findall(r"(?<=[^a-z])[a-z]+(?=[^a-z])", run.lower())]
    if not found:
        raise ValueError(f"no whole word is certain in {pattern!r}")
    return str(max(found, key=lambda word: (word not in _COMMON, len(word))))


def _plain(piece: str) -> str:
    """The one character that a piece of a pattern stands for, whatever its case; empty for any other piece."""
    if len(piece) == 2 and not piece[1].isalpha():
        return piece[1]
    if len(piece) == 4 and piece[1] != "^" and piece[1].lower() == piece[2].lower():
        return piece[1]  # [Ee]
    return piece if len(piece) == 1 and piece not in ".^$*+?()|" else ""


def bounded(pattern: str) -> str:
    """The pattern with a word boundary where it begins or ends with a letter."""
    begins = "(?<![A-Za-z])" if re.match(r"[A-Za-z]|\[([A-Za-z])[A-Za-z]\]", pattern) else ""
    ends = "(?![A-Za-z])" if re.search(r"(?:^|[^\\])[A-Za-z]$", pattern) else ""
    return begins + pattern + ends


@dataclass
class Patterns:
    """Patterns, root-most first, by the words that call for them; each is compiled when it is first called for."""

    ordered: List[Tuple[str, str]] = field(default_factory=list)  # slug, pattern
    compiled: Dict[int, Pattern[str]] = field(default_factory=dict)
    by_word: Dict[bytes, List[int]] = field(default_factory=dict)

    def add(self, slug: str, patterns: Sequence[str]) -> None:
        """Take in the patterns of the next cause."""
        for one in patterns:
            self.by_word.setdefault(key_of(one).encode(), []).append(len(self.ordered))
            self.ordered.append((slug, one))

    def slug(self, shape: str, words: Iterable[bytes]) -> Optional[str]:
        """The root-most slug for a line without digits, given its words."""
        called = sorted({index for word in words for index in self.by_word.get(word, ())})
        return next((self.ordered[index][0] for index in called if self._pattern(index).search(shape)), None)

    def _pattern(self, index: int) -> Pattern[str]:
        pattern = self.compiled.get(index)
        if pattern is None:
            pattern = self.compiled[index] = re.compile(bounded(self.ordered[index][1]))
        return pattern


def patterns_of(causes: Iterable[Cause], *, marks: bool) -> Patterns:
    """The patterns that accuse, or those that only say what goes on."""
    patterns = Patterns()
    for cause in causes:
        patterns.add(cause.slug, cause.marks if marks else cause.patterns)
    return patterns


ACCUSING = patterns_of(CATALOGUE, marks=False)
MARKING = patterns_of(CATALOGUE, marks=True)
# A line without any of these words speaks of no cause.
WORDS: FrozenSet[bytes] = frozenset(ACCUSING.by_word) | frozenset(MARKING.by_word)
