"""Progress in the log of any trainer: step, total, loss, rate; bound to the shape of line that was learned.

Known are ``step=``, HF Trainer's dictionaries, Lightning and tqdm bars, torchtitan, Megatron, nanoGPT, DeepSpeed,
fairseq and the tables of the common example scripts. Once a shape has risen three times, a ``step=`` in any other
shape or stream is somebody's text: it is no progress unless it goes on rising where the learned shape is silent.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Deque, Dict, Match, NamedTuple, Optional, Set, Tuple

from .logline import Written

LEARNS_AFTER = 3
LEARNS_EARLY = 64  # within so many step lines a second shape may be learned beside the first
LEARNS_ANEW = 16
MAX_SHAPES = 64
MAX_BOUND = 4
SPIKE = 2.0  # times the running mean
SPIKE_AFTER = 20
SPIKE_OVER = 1.3

_STEP = re.compile(
    r"(?P<word>\b(?:global_?|train_?|optimizer_?|local_?|micro_?)?(?:step|iteration|iter|batch|num_updates|update)s?"
    r"['\"]?)(?P<sep>\s*[=:#]?)\s*\[?\s*(?P<step>\d[\d,]*)(?:\s*/\s*(?P<total>\d[\d,]*))?(?![\d.]*\s*(?:ms|s|sec)\b)",
    re.IGNORECASE,
)
_TABLES = (
    re.compile(r"(?:Epoch|Iter)[^\[]{0,24}(?:\[\s*\d+\])?\[\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)"),
    re.compile(r"epoch \d+:\s+(?P<step>\d+) / (?P<total>\d+)"),
)
_BAR = re.compile(r"(?P<what>[^\r%|]*?)\s*\d{1,3}%\|[^|]*\|\s*(?P<step>\d+)/(?P<total>\d+) \[")
_BAR_OF_TRAINING = re.compile(r"^\W*(?:$|epoch|train|iter|step|fit|rank|train|progress|loss|\d|\[)", re.IGNORECASE)
_DICT = re.compile(r"\{'(?:loss|train_loss|actor/|reward)")
_LOSS = re.compile(r"loss['\"]?\s*[=:]?\s*(?P<loss>nan|[-+]?inf|[-+]?\d[\d.]*(?:e[-+]?\d+)?)", re.IGNORECASE)
_RATE = re.compile(r"\b(?:tok(?:ens)?/s(?:ec)?|tps)['\"]?\s*[=:]?\s*(\d[\d.,]*)")
# One of these words, or a bar, stands in every line that can show progress.
_NAMES = "step steps iter iters iteration iterations batch batches update updates epoch loss actor reward"
WORDS = frozenset(name.encode() for name in _NAMES.split())
MAX_PLANS = 64
_NUMBER = re.compile(rb"\s*(\d[\d,]*)(?:\s*/\s*(\d[\d,]*))?")
_VALUE = re.compile(rb"nan|[-+]?inf|[-+]?\d[\d.,]*(?:e[-+]?\d+)?", re.IGNORECASE)


class _Plan(NamedTuple):
    """Where the numbers of a learned shape stand: each after this text."""

    step: bytes
    loss: Optional[bytes]
    rate: Optional[bytes]


class _Found(NamedTuple):
    shape: str
    before: str  # the text that the step stands after; empty where that is not so simple
    step: Optional[int]
    total: Optional[int]
    firm: bool  # more than a number: a loss, a rate, a total


@dataclass
class _Sighting:
    last: int = -1
    rose: int = 0  # lines in a row that did not fall
    grew: bool = False
    run: int = 0  # lines since the learned shape was seen
    era: int = -1


@dataclass
class Steps:
    """Feed it the lines that may show progress, in order."""

    step: Optional[int] = None
    total: Optional[int] = None
    loss: Optional[float] = None
    rate: Optional[float] = None
    lines: int = 0  # that show progress beyond doubt
    last: Optional[Tuple[bytes, int]] = None  # the newest of them, and its number
    numbers: Deque[int] = field(default_factory=lambda: deque(maxlen=3))
    not_finite: Optional[Tuple[bytes, int]] = None
    spike: Optional[Tuple[bytes, int]] = None
    _mean: float = 0.0
    _losses: int = 0
    _unread: Optional[_Plan] = None  # of the newest line, whose numbers nobody has asked for yet
    _seen: Dict[str, _Sighting] = field(default_factory=dict)
    _bound: Set[str] = field(default_factory=set)
    _plans: Dict[bytes, _Plan] = field(default_factory=dict)

    def line(self, line: Written, number: int, raw: bytes) -> None:
        """Take one line that was parted from its prefix; raw is the whole of it."""
        text = line.text
        loss, rate = _LOSS.search(text), _RATE.search(text)
        found = _find(text, bool(loss or rate))
        if found is None:
            return
        shape = line.stream + "\n" + found.shape
        if not self._is_ours(shape, found.step):
            return
        self.read_numbers()
        if found.step is not None:
            self.step, self.total = found.step, found.total or self.total
        value = number_of(loss.group("loss")) if loss else self.loss
        self.loss = value
        if rate:
            self.rate = number_of(rate.group(1).replace(",", ""))
        if found.firm or shape in self._bound:
            self._moved(raw, number, value if loss else None)
        if shape in self._bound and not line.stream and found.before and raw[:1] not in b"[(":
            self._plan(raw, found.before, loss, rate)

    def again(self, key: bytes, raw: bytes, number: int) -> bool:
        """Take a line of a shape that was learned, without looking for its numbers; False when it is none."""
        plan = self._plans.get(key)
        if plan is None:
            return False
        self._unread = plan
        value: Optional[float] = None
        if plan.loss is not None:
            value = _after(raw, plan.loss)
            self.loss = value
        self._moved(raw, number, value)
        return True

    def read_numbers(self) -> None:
        """Step, total and rate of the newest line, if they were left unread."""
        plan, self._unread = self._unread, None
        if plan is None or self.last is None:
            return
        raw = self.last[0]
        at = raw.find(plan.step)
        found = _NUMBER.match(raw, at + len(plan.step)) if at >= 0 else None
        if found is not None:
            step, total = found.groups()
            self.step = int(step.replace(b",", b"")[:18])
            self.total = int(total.replace(b",", b"")[:18]) if total is not None else self.total
        if plan.rate is not None:
            self.rate = _after(raw, plan.rate)

    def _plan(self, raw: bytes, before: str, loss: Optional[Match[str]], rate: Optional[Match[str]]) -> None:
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        to_loss = loss.string[loss.start() : loss.start("loss")].encode() if loss else None
        to_rate = rate.string[rate.start() : rate.start(1)].encode() if rate else None
        self._plans[raw.translate(None, b"0123456789")] = _Plan(before.encode(), to_loss, to_rate)

    def _moved(self, raw: bytes, number: int, value: Optional[float]) -> None:
        self.lines += 1
        self.last = (raw, number)
        self.numbers.append(number)
        if value is None:
            return
        if not math.isfinite(value):
            self.not_finite = self.not_finite or self.last
            return
        self.not_finite = None
        if self._losses >= SPIKE_AFTER and value > SPIKE * self._mean > 0:
            self.spike = self.spike or self.last
            return  # what stands out does not move the mean
        if self.spike is not None and value > SPIKE_OVER * self._mean:
            return
        self.spike = None
        self._losses += 1
        self._mean += (value - self._mean) / min(self._losses, SPIKE_AFTER)

    def _is_ours(self, shape: str, step: Optional[int]) -> bool:
        if shape in self._bound:
            return True
        seen = self._seen.get(shape)
        if seen is None:
            if len(self._seen) >= MAX_SHAPES:
                self._seen.pop(next(iter(self._seen)))
            seen = self._seen[shape] = _Sighting()
        now = seen.rose if step is None else step  # a line without a number counts itself
        fell = now < seen.last
        seen.grew = not fell and (seen.grew or (now > seen.last >= 0))
        seen.rose = 1 if fell else seen.rose + 1
        seen.run = seen.run + 1 if seen.era == self.lines else 1
        seen.last, seen.era = now, self.lines
        if (
            seen.rose >= LEARNS_AFTER
            and seen.grew
            and len(self._bound) < MAX_BOUND
            and (not self._bound or self.lines <= LEARNS_EARLY)
        ):
            self._bound.add(shape)
        elif self._bound and seen.grew and seen.run >= LEARNS_ANEW and seen.rose >= LEARNS_ANEW:
            self._bound = {shape}
        return not self._bound or shape in self._bound


def bar_step(text: str) -> Optional[Tuple[int, int]]:
    """(step, total) of a training's progress bar; None for any other text."""
    bar = _BAR.match(text)
    if bar is None or not _BAR_OF_TRAINING.match(bar.group("what")) or int(bar.group("step")[:18]) == 0:
        return None
    return int(bar.group("step")[:18]), int(bar.group("total")[:18])


def _find(text: str, measured: bool) -> Optional[_Found]:
    if "%|" in text:
        bar = bar_step(text)
        return None if bar is None else _Found("%|", "", bar[0], bar[1], True)
    found = _STEP.search(text)
    if found is not None:
        total = _whole(found.group("total"))
        if not found.group("sep").strip() and not measured and total is None:
            return None  # "failed in step 5" is prose, not progress
        shape = _shape(text[: found.end("sep")])
        before = text[found.start() : found.start("step")]
        return _Found(shape, before, _whole(found.group("step")), total, measured or total is not None)
    table = next((match for match in (one.search(text) for one in _TABLES) if match), None)
    if table is not None and measured:
        shape = _shape(text[: table.start()]) + "["
        return _Found(shape, "", _whole(table.group("step")), _whole(table.group("total")), True)
    return _Found("{", "", None, None, True) if _DICT.search(text) else None


_DIGITS = str.maketrans("", "", "0123456789")


def _shape(head: str) -> str:
    return " ".join(head.translate(_DIGITS).split())[-200:]


def _whole(text: Optional[str]) -> Optional[int]:
    return None if text is None else int(text.replace(",", "")[:18])


def number_of(text: str) -> Optional[float]:
    """A number as a log writes it; None for what only looks like one."""
    try:
        return float(text)
    except ValueError:
        return None


def _after(raw: bytes, text: bytes) -> Optional[float]:
    at = raw.find(text)
    found = _VALUE.match(raw, at + len(text)) if at >= 0 else None
    if found is None:
        return None
    try:
        return float(found.group().replace(b",", b""))
    except ValueError:
        return None
