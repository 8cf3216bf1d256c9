"""How launchers and shells report the end of a child: torchrun, DeepSpeed, mpirun, srun, Lightning, bash."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import List, Match, Optional

from .facts import RankEnd

KEEP = 8

_WORDS = {
    "Hangup": 1,
    "Illegal instruction": 4,
    "Aborted": 6,
    "Bus error": 7,
    "Floating point exception": 8,
    "Killed": 9,
    "Out Of Memory": 9,
    "Segmentation fault": 11,
    "Terminated": 15,
}
_SIGNALS = {"SIGHUP": 1, "SIGINT": 2, "SIGILL": 4, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9, "SIGSEGV": 11}
_WORD = "|".join(_WORDS)

_REPORTS = (
    re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) \(pid: \d+\)"),
    re.compile(r"exits with return code = (?P<code>-?\d+)"),
    re.compile(r"terminated with code (?P<code>-?\d+)\b"),
    re.compile(r"process rank (?P<rank>\d+) with PID .* exited on signal (?P<number>\d+)"),
    re.compile(rf"srun: error: .*: tasks? (?P<rank>\d+)[^:]*: (?P<word>{_WORD})"),
    re.compile(r"srun: error: .*: tasks? (?P<rank>\d+)[^:]*: Exited with exit code (?P<code>\d+)"),
    re.compile(r"Received (?P<number>\d+) death signal"),
    re.compile(r"Received Signals\.(?P<name>SIG\w+) death signal"),
    re.compile(r"died with <Signals\.(?P<name>SIG\w+)"),
    re.compile(r"terminated with signal (?P<name>SIG\w+)"),
    re.compile(rf"line \d+: +\d+ (?P<word>{_WORD})\b"),
    re.compile(rf"^(?P<word>{_WORD})(?: +\(core dumped\))?$"),
)
_ROOT = "Root Cause (first observed failure)"
_ROOT_RANK = re.compile(r"^\s+rank +: (\d+)")
# One of these words stands in every line that matters here.
WORDS = frozenset(
    {b"exitcode", b"exits", b"code", b"exited", b"srun", b"signal", b"signals", b"terminated", b"cause", b"local"}
    | {words.split()[0].lower().encode() for words in _WORDS}
)
# ... and one of these signs, with the digits gone.
SIGNS = (
    *(
        "exitcode: ",
        "return code = ",
        "with code ",
        "exit code ",
        "on signal ",
        "death signal",
        "<Signals.",
        "with signal ",
    ),
    *(_ROOT, "rank      : "),
    *_WORDS,
)


@dataclass
class Ends:
    """The first few ends that were reported."""

    found: List[RankEnd] = field(default_factory=list)
    root_rank: Optional[str] = None  # the rank that torchrun names as the first to fail
    _in_root: bool = False

    def line(self, rank: Optional[str], text: str, number: int) -> None:
        """Take one line."""
        if _ROOT in text:
            self._in_root = True
            return
        root = _ROOT_RANK.match(text)
        if root:
            if self._in_root and self.root_rank is None:
                self.root_rank = root.group(1)
            return
        report = next((found for found in (one.search(text) for one in _REPORTS) if found), None)
        if report is None or len(self.found) >= KEEP:
            return
        end = _end(report, RankEnd(text[:1000], number, rank=rank))
        if end.code != 0:
            self.found.append(end)


def _end(found: Match[str], end: RankEnd) -> RankEnd:
    told = {name: value for name, value in found.groupdict().items() if value is not None}
    code, signal = None, None
    if "code" in told:
        code = int(told["code"][:6])
        signal = -code if code < 0 else None
    elif "number" in told:
        signal = int(told["number"][:6])
    elif "word" in told:
        signal = _WORDS[told["word"]]
    else:
        signal = _SIGNALS.get(told["name"], 15)
    return replace(end, code=code, signal=signal, rank=told.get("rank", end.rank))
