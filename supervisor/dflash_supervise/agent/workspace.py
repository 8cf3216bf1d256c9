"""What the run directory says, read in a lane of its own: the tick never waits for a workspace that does not answer."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Optional, Tuple, Union

from dflash_supervise.agent import shapes
from dflash_supervise.agent.files import attempt_numbers, read_json
from dflash_supervise.agent.host import free_room
from dflash_supervise.agent.lane import Job, Lane
from dflash_supervise.agent.logtail import LogTail
from dflash_supervise.agent.progress import NOT_YET, from_log, is_done, read_progress
from dflash_supervise.core.facts import LogReading, Missing, ProgressReading

Read = Optional[Dict[str, Any]]

NOT_LOOKED = Missing("the workspace has not answered yet")


@dataclass(frozen=True)
class WorkspaceLook:
    """One look at the run directory."""

    at_s: float
    there: bool  # the run directory exists
    spec: Optional[Dict[str, Any]] = None
    stop_file: bool = False
    attempts: Tuple[int, ...] = ()
    launch: Optional[Dict[str, Any]] = None  # of the newest attempt, like all below
    child: Optional[Dict[str, Any]] = None
    exit: Optional[Dict[str, Any]] = None
    done: bool = False
    progress: Union[ProgressReading, Missing] = NOT_LOOKED
    log: Union[LogReading, Missing] = NOT_LOOKED
    log_behind: bool = False
    machine: Optional[Dict[str, Any]] = None
    siblings: Tuple[str, ...] = ()  # all run ids of this workspace
    disk_free_bytes: Optional[int] = None
    disk_free_inodes: Optional[int] = None
    lost: str = ""  # what the run directory has forgotten (``known_attempt``)

    @property
    def newest(self) -> int:
        """The newest attempt on disk; 0 when there is none."""
        return self.attempts[-1] if self.attempts else 0


class WorkspaceEyes:
    """Looks at one run directory. ``begin`` and ``take`` belong to the tick, ``look`` runs in the lane."""

    def __init__(self, run_dir: str, run_id: str) -> None:
        self.run_dir = run_dir
        self.run_id = run_id
        self.answered = True  # as of the last ``take``
        self._lane = Lane("workspace")
        self._job: Optional[Job[WorkspaceLook]] = None
        self._began_s = 0.0
        self._last: Optional[WorkspaceLook] = None
        self._tail: Optional[LogTail] = None
        self._of_attempt: Dict[str, Dict[str, Any]] = {}
        self._attempt = 0
        self._spec_stamp: Optional[Tuple[int, int, int]] = None
        self._spec: Optional[Dict[str, Any]] = None
        self.trouble = ""
        self._extra: Optional[Job[Any]] = None

    def begin(self, now_s: float) -> None:
        """Start a look unless one is under way."""
        if self._job is None:
            self._began_s = now_s
            self._job = self._lane.submit(lambda: self.look(now_s))

    def take(self, now_s: float, wait_s: float) -> Tuple[Optional[WorkspaceLook], float]:
        """(the newest look, seconds without an answer). Waits at most ``wait_s``; None before the first answer."""
        if self._job is not None and self._job.wait(wait_s):
            job, self._job = self._job, None
            try:
                self._last, self.answered, self.trouble = job.result(), True, ""
                return self._last, 0.0
            except OSError as error:
                self.trouble = str(error)  # it answers, with an error (stale handle): as blind as no answer
            except Exception as fault:  # noqa: BLE001 - shown beside the verdict; goals and stops need no workspace
                self.trouble = f"the look failed: {fault!r}"
        self.answered = False
        since = self._last.at_s if self._last is not None else self._began_s
        return self._last, max(now_s - since, 0.001)

    def also(self, work: Callable[[], Any]) -> None:
        """Do some rare file work between two looks, unless such work is under way."""
        if self._extra is None or self._extra.done:
            self._extra = self._lane.submit(work)

    def attempt_dir(self, number: int) -> str:
        """``attempts/<n>``."""
        return os.path.join(self.run_dir, "attempts", str(number))

    def log_path(self, number: int) -> str:
        """The log of an attempt, as far as it is known."""
        if self._tail is not None and number == self._attempt:
            return self._tail.path
        return os.path.join(self.attempt_dir(number), "train.log")

    def look(self, now_s: float) -> WorkspaceLook:
        """Read everything once. May block as long as the file system does.

        Raises:
            OSError: the workspace answers with an error other than "not there".
        """
        free, inodes = free_room(os.path.dirname(os.path.dirname(os.path.dirname(self.run_dir))))
        found = WorkspaceLook(
            at_s=now_s, there=os.path.isdir(self.run_dir), disk_free_bytes=free, disk_free_inodes=inodes
        )
        if not found.there:
            return found
        attempts = attempt_numbers(self.run_dir)
        found = replace(
            found,
            spec=self._read_spec(),
            stop_file=os.path.lexists(os.path.join(self.run_dir, "STOP")),
            attempts=attempts,
            machine=self._once("machine.json", self.run_dir, shapes.machine),
            siblings=tuple(os.listdir(os.path.dirname(self.run_dir))),
        )
        return self._look_at_attempt(found) if attempts else found

    def _look_at_attempt(self, found: WorkspaceLook) -> WorkspaceLook:
        number = found.newest
        folder = self.attempt_dir(number)
        if number != self._attempt:
            self._attempt = number
            self._of_attempt = {key: value for key, value in self._of_attempt.items() if key == "machine.json"}
        child = self._once("child.json", folder, shapes.child)
        adopted = bool(child and child.get("adopted"))
        path = str((child or {}).get("log") or os.path.join(folder, "train.log"))
        if self._tail is None or self._tail.path != path:
            if self._tail is not None:
                self._tail.close()
            self._tail = LogTail(path)
        # The end is read before the log: every line that came before the end is then in this look.
        ended = self._once("exit.json", folder, shapes.exit_told)
        no_log = adopted and not (child or {}).get("log")
        log = Missing("no log was named") if no_log else self._tail.look()
        progress = read_progress(folder, number)
        if isinstance(progress, Missing) and progress.reason == NOT_YET:
            progress = from_log(log)
        return replace(
            found,
            launch=self._once("launch.json", folder, shapes.launch),
            child=child,
            exit=ended,
            done=is_done(folder, self.run_id, number),
            progress=progress,
            log=log,
            log_behind=self._tail.behind_bytes > 0,
        )

    def _once(self, name: str, folder: str, known: Callable[[Read], Read]) -> Read:
        """A file that is written once and never changes; None while it is not there, whole and of its shape."""
        if name not in self._of_attempt:
            value = known(read_json(os.path.join(folder, name)))
            if value is None:
                return None
            self._of_attempt[name] = value
        return self._of_attempt[name]

    def _read_spec(self) -> Optional[Dict[str, Any]]:
        path = os.path.join(self.run_dir, "spec.json")
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return self._spec
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp != self._spec_stamp:
            self._spec_stamp = stamp
            self._spec = read_json(path) or self._spec
        return self._spec
