"""Read a training log by bytes, as it grows, in constant memory: tracebacks, causes, steps.

Any cut of the same bytes gives the same result. Lines are cut to 8 KiB before anything is matched; of a line with
carriage returns the last part counts, as on a terminal. What a line can mean hangs on its text without digits, so the
answer is remembered: of a log that repeats itself most lines cost one look into a table.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Deque, Dict, NamedTuple, Optional, Tuple

from . import logends, logsteps, logtrace, matching
from .facts import CauseMatch, LogReading
from .logends import Ends
from .logline import LINE_BYTES, Written, clean, reduced, written
from .logsteps import Steps, bar_step
from .logtrace import Tracer

TAIL_LINES = 40
MAX_MATCHES = 64
MAX_SHAPES = 4096
SHAPE_BYTES = 1024  # longer lines are not remembered
OURS = "[dflash] "
_OURS = OURS.encode()

_DIGITS = b"0123456789"
_FINISHED = (
    "raining complete",
    "raining is complete",
    "raining has completed",
    "raining finished",
    "raining is done",
    "raining done",
    "inished training",
    "'train_runtime'",
    "`Trainer.fit` stopped: `max_",
    "finished / steps",
    "ll epochs completed",
    "wandb: Find logs at",
)
_FINISHED_WORDS = frozenset({b"training", b"train", b"stopped", b"finished", b"epochs", b"wandb"})
# A line without any of these words has no meaning here.
_WORDS = matching.WORDS | logsteps.WORDS | logends.WORDS | logtrace.WORDS | _FINISHED_WORDS
_WARNS = ("Warning: ", "WARN")


class _Shape(NamedTuple):
    """What lines of one shape can mean."""

    blank: bool = False
    ours: bool = False
    plain: bool = True  # nothing of what follows
    only_step: bool = False
    accused: Optional[str] = None
    marked: Optional[str] = None
    warns: bool = False
    step: bool = False
    end: bool = False
    finished: bool = False
    trace: bool = False


@dataclass
class LogScanner:
    """Feed it the log's bytes in order; ask it for a reading at any time."""

    body_bytes: int = 0
    line_number: int = 0
    cut_head: bool = False
    matches: Dict[Tuple[str, Optional[str]], CauseMatch] = field(default_factory=dict)
    marks: Dict[str, CauseMatch] = field(default_factory=dict)
    finished: Optional[CauseMatch] = None
    tracer: Tracer = field(default_factory=Tracer)
    steps: Steps = field(default_factory=Steps)
    ends: Ends = field(default_factory=Ends)
    _tail: Deque[bytes] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    _shapes: Dict[bytes, _Shape] = field(default_factory=dict)
    _fed: bool = False
    _held: bytes = b""  # the unfinished last line, reduced to what can still count
    _held_bytes: int = 0  # its true length
    _held_returns: bool = False  # it has carriage returns

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        if data and not self._fed:
            self._fed, self.cut_head = True, data[:1] == b"\x00"
        *lines, rest = data.split(b"\n")
        if lines and self._held_bytes:
            self._hold(lines[0])
            self._line(self._held, self._held_bytes)
            self._held, self._held_bytes, self._held_returns = b"", 0, False
            del lines[0]
        for raw in lines:
            self._line(raw, len(raw))
        if rest:
            self._hold(rest)

    def _hold(self, raw: bytes) -> None:
        self._held_bytes += len(raw)
        self._held_returns = self._held_returns or b"\r" in raw
        self._held = reduced(self._held + raw)

    def reading(self, *, exists: bool, size_bytes: int) -> LogReading:
        """What is known now. Of an unfinished last line only a progress bar's step counts."""
        tail = tuple(text for text in map(clean, self._tail) if text.strip())
        last_line = clean(self._held) if self._held_bytes else (tail[-1] if tail else "")
        tracebacks, steps = self.tracer.found, self.steps
        steps.read_numbers()
        bar = bar_step(last_line) if self._held_bytes else None
        progress, numbers = _line_of(steps.last), tuple(steps.numbers)
        if bar is not None:
            progress = CauseMatch("none", last_line[:1000], self.line_number + 1)
            numbers = (*numbers, self.line_number + 1)[-3:]
        accused = [*self.matches.values(), *_of_loss(steps)]
        return LogReading(
            exists=exists,
            size_bytes=size_bytes,
            body_bytes=self.body_bytes + (0 if last_line.startswith(OURS) else self._held_bytes),
            last_line=last_line,
            step=steps.step if bar is None else bar[0],
            loss=steps.loss,
            tokens_per_s=steps.rate,
            tracebacks=tracebacks,
            traceback_is_last=None if not tracebacks else not (numbers and numbers[-1] > tracebacks[-1].line_number),
            causes=tuple(sorted(accused, key=lambda found: found.line_number)),
            tail=tail,
            steps_total=steps.total if bar is None else bar[1],
            progress=progress,
            progress_lines=numbers,
            step_lines=steps.lines,
            stepped=steps.lines > 0 or bar is not None,
            in_bar=bar is not None and self._held_returns,
            marks=tuple(sorted(self.marks.values(), key=lambda found: found.line_number)),
            ends=tuple(self.ends.found),
            root_rank=self.ends.root_rank,
            finished=self.finished,
            cut_head=self.cut_head,
        )

    def _line(self, raw: bytes, size: int) -> None:
        self.line_number += 1
        if len(raw) > LINE_BYTES or b"\r" in raw:
            raw = reduced(raw)
        key = raw.translate(None, _DIGITS)
        shape = self._shapes.get(key) or self._learn(key, raw)
        if shape.ours:
            return
        self.body_bytes += size + 1
        if shape.blank:
            return
        self._tail.append(raw)
        if shape.plain and not self.tracer.busy:
            return
        if not shape.only_step or self.tracer.busy or not self.steps.again(key, raw, self.line_number):
            self._read(shape, raw)

    def _learn(self, key: bytes, raw: bytes) -> _Shape:
        shape = _shape_of(key, raw)
        if len(key) <= SHAPE_BYTES:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[key] = shape
        return shape

    def _read(self, shape: _Shape, raw: bytes) -> None:
        line, number = written(clean(raw)), self.line_number
        if (shape.trace or self.tracer.busy) and self.tracer.line(line, number):
            return
        if shape.step:
            self.steps.line(line, number, raw)
        if shape.accused is not None:
            self._accuse(shape.accused, shape.warns, line)
        if shape.marked is not None:
            self.marks[shape.marked] = CauseMatch(shape.marked, line.text[:1000], number, line.rank)
        if shape.end:
            self.ends.line(line.rank, line.text, number)
        if shape.finished:
            self.finished = CauseMatch("none", line.text[:1000], number, line.rank)

    def _accuse(self, slug: str, warns: bool, line: Written) -> None:
        """Keep the first line of each, unless training went on after it or it was only a warning."""
        key = (slug, line.rank)
        old = self.matches.get(key)
        numbers = self.steps.numbers
        survived = old is not None and len(numbers) == 3 and numbers[0] > old.line_number
        if old is None and len(self.matches) >= MAX_MATCHES:
            return
        if old is None or survived or (old.warns and not warns):
            self.matches[key] = CauseMatch(slug, line.text[:1000], self.line_number, line.rank, warns)


def _of_loss(steps: Steps) -> Tuple[CauseMatch, ...]:
    """A loss that is not finite, or far above what it was, as of the last line that told one."""
    told = ((_line_of(steps.not_finite), "nan_loss"), (_line_of(steps.spike), "loss_spike"))
    return tuple(replace(line, slug=slug) for line, slug in told if line is not None)


def _line_of(kept: Optional[Tuple[bytes, int]]) -> Optional[CauseMatch]:
    if kept is None:
        return None
    line = written(clean(kept[0]))
    return CauseMatch("none", line.text[:1000], kept[1], line.rank)


def _shape_of(key: bytes, raw: bytes) -> _Shape:
    if raw.startswith(_OURS):
        return _Shape(ours=True)
    words = matching.words_of(clean(key).encode("utf-8", "replace") if b"\x1b" in key else key)
    telling = _WORDS.intersection(words)
    if not telling and b"%|" not in key:
        return _Shape() if words or clean(raw).strip() else _Shape(blank=True)
    text = written(clean(raw)).text.translate(matching.DIGITS)
    step = len(key) < len(raw) and ("%|" in text or not logsteps.WORDS.isdisjoint(telling))
    end = not logends.WORDS.isdisjoint(telling) and any(sign in text for sign in logends.SIGNS)
    trace = not logtrace.WORDS.isdisjoint(telling)
    finished = not _FINISHED_WORDS.isdisjoint(telling) and any(sign in text for sign in _FINISHED)
    accused, marked = matching.ACCUSING.slug(text, telling), matching.MARKING.slug(text, telling)
    only_step = step and not (accused or marked or end or finished or trace)
    plain = not (accused or marked or step or end or finished or trace)
    warns = accused is not None and (any(sign in text for sign in _WARNS) or text.startswith(("[W ", "W ")))
    return _Shape(False, False, plain, only_step, accused, marked, warns, step, end, finished, trace)
