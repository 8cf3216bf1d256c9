"""Where the threads of a Python trainer stand: faulthandler dumps on SIGUSR1, folded so that two can be compared."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from hashlib import sha1
from typing import List, Tuple, Union

from dflash_supervise.agent.proc import catches, signal_process
from dflash_supervise.core.facts import Missing, StackSample, StacksReading

KEEP = 4
ANSWER_S = 3.0  # a thread that holds the interpreter does not delay faulthandler: it writes from the handler itself
POLL_S = 0.1
MAX_BYTES = 1 << 20
SUMMARY_MAX = 64
WAITING = re.compile(r"/python3[^/]*/(threading|queue|selectors|socket|ssl|subprocess)\.py$")
THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    function: str

    @property
    def waits(self) -> bool:
        """Standard library code in which every idle thread stands; it tells nothing about who waits for what."""
        return WAITING.search(self.file) is not None


@dataclass(frozen=True)
class ThreadStack:
    ident: str
    name: str
    frames: Tuple[Frame, ...]  # innermost first


class Sampler:
    """Samples of one attempt's main process. Signals and files are handled in a thread: a workspace may stall."""

    def __init__(self, attempt_dir: str, pid: int, start_ticks: int, *, proc_root: str = "/proc") -> None:
        self._path = os.path.join(attempt_dir, "stacks.txt")
        self._pid, self._start_ticks, self._proc_root = pid, start_ticks, proc_root
        self._busy = threading.Lock()
        self._samples: Tuple[StackSample, ...] = ()
        self._text = ""
        self._why = "no stack sample was taken"

    def sample(self, now_s: float) -> bool:
        """Ask for a sample and return at once; False while an earlier one is still under way."""
        if self._busy.locked():
            return False
        threading.Thread(target=self.take, args=(now_s,), name="stacks", daemon=True).start()
        return True

    def reading(self) -> Union[StacksReading, Missing]:
        return StacksReading(self._samples) if self._samples else Missing(self._why)

    @property
    def newest_text(self) -> str:
        """The newest dump as it was written; empty when there is none."""
        return self._text

    def take(self, now_s: float) -> bool:
        """One sample, waiting for the answer for up to three seconds. Returns whether there was one."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            text = self._ask()
            stacks = parse(text)
            if stacks:
                sample = StackSample(at_s=now_s, digest=digest(stacks), summary=summary(stacks))
                self._samples, self._text = (*self._samples, sample)[-KEEP:], text
            return bool(stacks)
        except OSError as error:
            self._why = f"stacks.txt cannot be read: {error}"
            return False
        finally:
            self._busy.release()

    def _ask(self) -> str:
        before = _size(self._path)
        if not catches(self._pid, signal.SIGUSR1, self._proc_root):
            self._why = "the main process has no handler for SIGUSR1"
            return ""
        if not signal_process(self._pid, self._start_ticks, signal.SIGUSR1, self._proc_root):
            self._why = "the main process is gone or not ours"
            return ""
        until, size = time.monotonic() + ANSWER_S, before
        while time.monotonic() < until:
            time.sleep(POLL_S)
            last, size = size, _size(self._path)
            if size != before and size == last:
                return newest_dump(_tail(self._path))
        self._why = f"the main process did not write its stacks within {ANSWER_S:.0f} s"
        return ""


def newest_dump(text: str) -> str:
    """The last of several dumps in one file: it begins where, read backwards, a thread would come a second time."""
    lines = text.splitlines()
    seen = set()
    begin = len(lines)
    for index in range(len(lines) - 1, -1, -1):
        match = THREAD.match(lines[index])
        if match:
            if match.group(1) in seen:
                break
            seen.add(match.group(1))
            begin = index
    return "\n".join(lines[begin:]) + "\n" if begin < len(lines) else ""


def parse(text: str) -> Tuple[ThreadStack, ...]:
    """The threads of one dump; lines of other shapes (garbage collecting, no Python frame) are passed over."""
    threads: List[Tuple[str, str, List[Frame]]] = []
    for line in text.splitlines():
        head, frame = THREAD.match(line), FRAME.match(line)
        if head:
            threads.append((head.group(1), head.group(2) or "", []))
        elif frame and threads:
            threads[-1][2].append(Frame(frame.group(1), int(frame.group(2)), frame.group(3)))
    return tuple(ThreadStack(ident, name, tuple(frames)) for ident, name, frames in threads)


def digest(stacks: Tuple[ThreadStack, ...]) -> str:
    """Equal for two dumps in which every thread stands at the same place, whatever their order."""
    told = sorted(";".join(f"{f.file}:{f.line}:{f.function}" for f in s.frames if not f.waits) for s in stacks)
    text = "\n".join(line for line in told if line)
    return sha1(text.encode("utf-8", "surrogateescape")).hexdigest()  # noqa: S324 - a fingerprint, not a secret


def summary(stacks: Tuple[ThreadStack, ...]) -> Tuple[str, ...]:
    """One line a thread: its innermost frame outside of waiting code."""
    lines = []
    for number, stack in enumerate(stacks[:SUMMARY_MAX], 1):
        frame = next((f for f in stack.frames if not f.waits), stack.frames[0] if stack.frames else None)
        if frame is not None:
            where = f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})"
            lines.append(f"thread {stack.name or number}: {where}")
    return tuple(lines)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _tail(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_BYTES))
        return file.read(MAX_BYTES).decode("utf-8", "replace")
