"""Tracebacks in a log, each stream of lines for itself: chained, grouped, boxed, of threads, of child processes."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Deque, Dict, List, Optional, Tuple

from . import causes
from .facts import Traceback
from .logline import Written

KEEP_FIRST = 4
KEEP_LAST = 4
MAX_STREAMS = 1024
MAX_OPEN_LINES = 600  # a traceback whose end has not come by then has none

HEAD = "Traceback (most recent call last)"
_BOX = "\u256d\u2502\u2570|"
_THREAD = re.compile(r"^Exception in thread (.+?)(?: \(most recent call last\))?:?$")
_PROCESS = re.compile(r"^Process ([A-Za-z_][\w:.-]*):$")
_CHILD = re.compile(r"^-- Process (\d+) terminated with the following error:")
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$')
_BOX_FRAME = re.compile(r"^\S\s+(\S+):(\d+) in(?:\s|$)")
_MARGIN = re.compile(r"^ *(?:\|[ ]?|\+(?: |-+\+?-*|(?=$)))")
_EXCEPTION = re.compile(r"^((?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:\(\w+\))?)(?:: ?(.*))?$")
_NAMED_LIKE_ONE = re.compile(
    r"(?:Error|Exception|Warning|Interrupt|Exit|Group|Failure|Timeout|Iteration|Abort|Empty|Full)$|^[A-Z][a-z]+[A-Z]"
)
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# A traceback after one of these ended nothing.
_IGNORED = ("Exception ignored ", "--- Logging error ---", "Error in atexit", "Task exception was never retrieved")
# One of these words stands in every line that matters here while no traceback is open.
WORDS = frozenset(
    {b"traceback", b"thread", b"process", b"ignored", b"handling", b"direct", b"logging", b"atexit", b"retrieved"}
)


@dataclass
class _Open:
    """A traceback whose exception line has not come yet."""

    where: str = ""
    thread: Optional[str] = None
    rank: Optional[str] = None
    ignored: bool = False
    chained: bool = False
    lines: int = 0
    head: int = 0


@dataclass
class _Stream:
    open: Optional[_Open] = None
    thread: Optional[str] = None  # said by the line before
    said_at: int = 0
    rank: Optional[str] = None
    ignored: bool = False
    chained: bool = False
    grouped: bool = False
    group: Tuple[str, int] = ("", 0)


@dataclass
class Tracer:
    """Feed it lines in order; ``busy`` says whether it waits for more of a traceback."""

    first: List[Traceback] = field(default_factory=list)
    last: Deque[Traceback] = field(default_factory=lambda: deque(maxlen=KEEP_LAST))
    busy: int = 0
    _streams: Dict[str, _Stream] = field(default_factory=dict)

    @property
    def found(self) -> Tuple[Traceback, ...]:
        """The first few and the last few."""
        return (*self.first, *self.last)

    def line(self, written: Written, number: int) -> bool:
        """Take one line. True for the inside of a traceback: what stands there is code, and speaks of nothing."""
        stream = self._streams.get(written.stream)
        if stream is None:
            stream = _Stream()
            if len(self._streams) < MAX_STREAMS:
                self._streams[written.stream] = stream
        stream.grouped = stream.grouped and written.text[:1] in " |+"
        grouped = stream.grouped or "Exception Group " + HEAD in written.text
        text = _MARGIN.sub("", written.text) if grouped else written.text
        if self._announced(stream, text, number) or not text:
            return False
        if stream.open is None:
            return False
        return self._body(stream, written, text, number)

    def _announced(self, stream: _Stream, text: str, number: int) -> bool:
        """What comes next: a traceback, or a line that says whose it will be."""
        if HEAD in text and (text.rstrip().endswith(HEAD + ":") or text[0] in _BOX):
            self._opens(stream, number)
            stream.grouped = stream.grouped or "Exception Group" in text
            if "Exception Group" in text:
                stream.group = ("", 0)
            return True
        thread = _THREAD.match(text) or _PROCESS.match(text)
        if thread:
            stream.thread, stream.said_at = thread.group(1), number
            return True
        child = _CHILD.match(text)
        if child:
            stream.rank = child.group(1)
            return True
        if text.startswith(_IGNORED):
            stream.ignored = True
            return True
        if text.strip() in _CHAINS:
            stream.chained = True
            return True
        return False

    def _opens(self, stream: _Stream, number: int) -> None:
        self.busy += stream.open is None
        stream.open = _Open("", stream.thread, stream.rank, stream.ignored, stream.chained, 0, stream.said_at or number)
        stream.thread, stream.rank, stream.ignored, stream.chained, stream.said_at = None, None, False, False, 0

    def _body(self, stream: _Stream, written: Written, text: str, number: int) -> bool:
        trace = stream.open
        assert trace is not None, "only an open traceback has a body"
        trace.lines += 1
        if trace.lines > MAX_OPEN_LINES:
            self._closes(stream)
            return False
        if text[0] in " \t" or text[0] in _BOX:
            frame = _FRAME.match(text) or (_BOX_FRAME.match(text) if text[0] in _BOX else None)
            if frame:
                trace.where = f"{frame.group(1)}:{frame.group(2)}"
            return True
        found = _EXCEPTION.match(text)
        if not found or not ("." in found.group(1) or _NAMED_LIKE_ONE.search(found.group(2))):
            return False  # another thread's line in between; the exception line is still to come
        self._closes(stream)
        if trace.ignored:
            return True
        if stream.grouped and found.group(2).endswith("Group") and not stream.group[0]:
            stream.group = (text[:1000], number)
        ended = Traceback(
            exc_type=found.group(1),
            message=(found.group(3) or "")[:500],
            key_line=text[:1000],
            line_number=number,
            where=trace.where,
            thread=trace.thread,
            rank=written.rank or trace.rank,
            slug=causes.match(text),
            head_line_number=trace.head,
            chained=trace.chained,
            group=stream.group[0] if stream.grouped and stream.group[1] != number else "",
            group_line_number=stream.group[1] if stream.grouped else 0,
        )
        self._keep(ended)
        return False

    def _closes(self, stream: _Stream) -> None:
        stream.open = None
        self.busy -= 1

    def _keep(self, found: Traceback) -> None:
        if len(self.first) < KEEP_FIRST:
            self.first.append(found)
        else:
            self.last.append(found)
