"""What was read in a log: the reading of one section of an observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class Traceback:
    """One traceback read from the log, folded to what names it."""

    exc_type: str
    message: str
    key_line: str  # the line a person should read, as it stands in the log
    line_number: int  # 1-based
    where: str = ""  # file:line of the innermost frame
    thread: Optional[str] = None  # set for "Exception in thread NAME" and "Process NAME:"
    rank: Optional[str] = None
    slug: Optional[str] = None  # the catalogue's entry that its key line speaks of
    head_line_number: int = 0  # where it was announced: its head, or the line that names the thread
    chained: bool = False  # raised while another one of the same stream was handled: the earlier one is the root
    group: str = ""  # the exception group it was in
    group_line_number: int = 0


@dataclass(frozen=True)
class CauseMatch:
    """A catalogue entry that the log or the kernel spoke of."""

    slug: str
    key_line: str
    line_number: int
    rank: Optional[str] = None
    warns: bool = False  # the line itself says that it is only a warning


@dataclass(frozen=True)
class RankEnd:
    """How a launcher or shell says that one of its children ended."""

    key_line: str
    line_number: int
    code: Optional[int] = None
    signal: Optional[int] = None
    rank: Optional[str] = None


@dataclass(frozen=True)
class LogReading:
    """The attempt's log: bytes, and what the incremental scanner found in them."""

    exists: bool
    size_bytes: int = 0
    body_bytes: int = 0  # beyond our own header and footer lines
    last_line: str = ""
    step: Optional[int] = None
    loss: Optional[float] = None
    tokens_per_s: Optional[float] = None
    tracebacks: Tuple[Traceback, ...] = ()  # the first few and the last few
    traceback_is_last: Optional[bool] = None  # nothing but teardown noise follows the last traceback
    causes: Tuple[CauseMatch, ...] = ()  # what was accused, the first line of each
    tail: Tuple[str, ...] = ()
    steps_total: Optional[int] = None
    progress: Optional[CauseMatch] = None  # the last line that shows a step
    progress_lines: Tuple[int, ...] = ()  # the numbers of the last three of them: what is older than all was survived
    step_lines: int = 0
    stepped: bool = False
    in_bar: bool = False  # the unfinished last line is a progress bar
    marks: Tuple[CauseMatch, ...] = ()  # what was said to go on, the last line of each
    ends: Tuple[RankEnd, ...] = ()  # the first few
    root_rank: Optional[str] = None  # the rank that the launcher names as the first to fail
    finished: Optional[CauseMatch] = None  # a line that says the training is done
    cut_head: bool = False  # it begins with NULs: somebody truncated it in place
