"""Read a training log by bytes, as it grows, in constant memory: tracebacks, causes, steps.

Any cut of the same bytes gives the same result. Lines are cut to 8 KiB before anything is matched; of a line with
carriage returns the last part counts, as on a terminal.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Deque, Dict, List, Optional, Tuple

from . import causes
from .facts import CauseMatch, LogReading, Traceback

LINE_BYTES = 8192
TAIL_LINES = 40
KEEP_FIRST = 4
KEEP_LAST = 4
OURS = "[dflash] "

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_RANK = re.compile(r"^\[(?:rank|default)?(\d+)\]:?\s?")
_THREAD = re.compile(r"^Exception in thread (.+?):?$")
_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d+), in (.+)$')
_EXCEPTION = re.compile(
    r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Group|Failure|Timeout)?)(?:: (.*))?$"
)
_STEP = re.compile(r"\bstep(\s*[=:]\s*|\s+)(\d+)")
_LOSS = re.compile(r"\bloss[ =:]+(nan|[-+]?[\d.]+(?:e[-+]?\d+)?)", re.IGNORECASE)
_RATE = re.compile(r"\btok(?:ens)?/s(?:ec)?[ =:]+([\d.,]+)")


@dataclass
class _Open:
    """A traceback whose exception line has not come yet."""

    line_number: int
    where: str = ""
    thread: Optional[str] = None


@dataclass
class _Rank:
    open: Optional[_Open] = None
    thread: Optional[str] = None  # "Exception in thread" was the line before


@dataclass
class LogScanner:
    """Feed it the log's bytes in order; ask it for a reading at any time."""

    first: List[Traceback] = field(default_factory=list)
    last: Deque[Traceback] = field(default_factory=lambda: deque(maxlen=KEEP_LAST))
    matches: Dict[Tuple[str, Optional[str]], CauseMatch] = field(default_factory=dict)
    tail: Deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    body_bytes: int = 0
    line_number: int = 0
    step: Optional[int] = None
    loss: Optional[float] = None
    rate: Optional[float] = None
    stepped_after_traceback: bool = False
    _held: bytes = b""  # the unfinished last line, reduced to what can still count
    _held_bytes: int = 0  # its true length
    _ranks: Dict[str, _Rank] = field(default_factory=dict)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        *lines, rest = data.split(b"\n")
        for raw in lines:
            if self._held_bytes:
                self._hold(raw)
                self._line(self._held, self._held_bytes)
                self._held, self._held_bytes = b"", 0
            else:
                self._line(raw, len(raw))
        if rest:
            self._hold(rest)

    def _hold(self, raw: bytes) -> None:
        self._held_bytes += len(raw)
        self._held = _reduce(self._held + raw)

    def reading(self, *, exists: bool, size_bytes: int) -> LogReading:
        """What is known now. An unfinished last line counts as the last line, and for nothing else."""
        last_line = _clean(self._held) if self._held_bytes else (self.tail[-1] if self.tail else "")
        tracebacks = tuple(self.first) + tuple(self.last)
        ours = last_line.startswith(OURS)
        return LogReading(
            exists=exists,
            size_bytes=size_bytes,
            body_bytes=self.body_bytes + (0 if ours else self._held_bytes),
            last_line=last_line,
            step=self.step,
            loss=self.loss,
            tokens_per_s=self.rate,
            tracebacks=tracebacks,
            traceback_is_last=not self.stepped_after_traceback if tracebacks else None,
            causes=tuple(sorted(self.matches.values(), key=lambda found: found.line_number)),
            tail=tuple(self.tail),
        )

    def _line(self, raw: bytes, size: int) -> None:
        self.line_number += 1
        line = _clean(raw)
        if line.startswith(OURS):
            return
        self.body_bytes += size + 1
        if not line.strip():
            return
        self.tail.append(line)
        rank, text = _split_rank(line)
        self._traceback(rank, text)
        self._cause(rank, text)
        self._numbers(text)

    def _traceback(self, rank: Optional[str], text: str) -> None:
        state = (
            self._ranks.setdefault(rank or "", _Rank())
            if len(self._ranks) < 1024 or (rank or "") in self._ranks
            else _Rank()
        )
        thread = _THREAD.match(text)
        if thread:
            state.thread = thread.group(1)
            return
        if text.startswith("Traceback (most recent call last)"):
            state.open = _Open(self.line_number, thread=state.thread)
            state.thread = None
            return
        if state.open is None:
            return
        if text[0] in " \t":
            frame = _FRAME.match(text)
            if frame:
                state.open.where = f"{frame.group(1)}:{frame.group(2)}"
            return
        found = _EXCEPTION.match(text)
        if not found:
            return  # another thread's line in between; the exception line is still to come
        self._keep(
            Traceback(
                exc_type=found.group(1),
                message=(found.group(2) or "")[:500],
                key_line=text[:1000],
                line_number=self.line_number,
                where=state.open.where,
                thread=state.open.thread,
                rank=rank,
            )
        )
        state.open = None

    def _keep(self, found: Traceback) -> None:
        self.stepped_after_traceback = False
        if len(self.first) < KEEP_FIRST:
            self.first.append(found)
        else:
            self.last.append(found)

    def _cause(self, rank: Optional[str], text: str) -> None:
        slug = causes.match(text)
        if slug is not None and len(self.matches) < 64:
            self.matches.setdefault((slug, rank), CauseMatch(slug, text[:1000], self.line_number, rank))

    def _numbers(self, text: str) -> None:
        found = _STEP.search(text)
        if not found:
            return
        loss, rate = _LOSS.search(text), _RATE.search(text)
        if not found.group(1).strip() and not (loss or rate):
            return  # "failed in step 5" is prose, not progress
        self.step = int(found.group(2)[:18])
        if loss:
            self.loss = _number(loss.group(1))
            self.stepped_after_traceback = True
        if rate:
            self.stepped_after_traceback = True
            self.rate = _number(rate.group(1).replace(",", ""))


def _reduce(raw: bytes) -> bytes:
    """The part of an unfinished line that can still count: its last carriage-return segment, cut to 8 KiB.

    ``_reduce(_reduce(a) + b) == _reduce(a + b)`` for any cut, so a line of any length needs constant memory.
    """
    if b"\r" not in raw:
        return raw[:LINE_BYTES]
    returned = b"\r" if raw.endswith(b"\r") else b""
    return raw.rstrip(b"\r").rsplit(b"\r", 1)[-1][:LINE_BYTES] + returned


def _clean(raw: bytes) -> str:
    text = _reduce(raw).rstrip(b"\r").decode("utf-8", "replace").replace("\x00", "")
    return _ANSI.sub("", text) if "\x1b" in text else text


def _split_rank(line: str) -> Tuple[Optional[str], str]:
    if line[0] != "[":
        return None, line
    found = _RANK.match(line)
    return (found.group(1), line[found.end() :] or " ") if found else (None, line)


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None
