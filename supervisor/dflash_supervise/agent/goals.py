"""The spec in force, as the agent sees it: the newer of two copies, the last good one when neither reads."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple

from dflash_supervise.agent.files import read_json
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.agent.spec import Spec, parse_spec
from dflash_supervise.core.facts import Goal


class Goals:
    """Follows spec.json of one run. The copy in the runtime folder answers also when the workspace does not."""

    def __init__(self, runtime: Runtime, run_id: str, started_s: float, boot_id: str) -> None:
        self._path = runtime.in_run(run_id, "spec.json")
        self._started_s = started_s
        self._boot_id = boot_id
        self._stamp: Optional[Tuple[int, int, int]] = None
        self._seen: Dict[str, Any] = {}
        self.spec: Optional[Spec] = None
        self.trouble = ""

    def update(self, from_workspace: Optional[Dict[str, Any]]) -> bool:
        """Take in what both copies say; True when a newer generation came into force."""
        before = self.spec.generation if self.spec is not None else 0
        for data in (self._local(), from_workspace):
            if data is not None and data is not self._seen.get("data"):
                self._take(data)
        return self.spec is not None and self.spec.generation > before

    def goal(self, stop_file: bool) -> Goal:
        """What is wanted now; a STOP file of a person on the host outranks the spec."""
        assert self.spec is not None
        goal = self.spec.goal(self._boot_id, self._started_s)
        return Goal("stop", goal.generation) if stop_file else goal

    def _local(self) -> Optional[Dict[str, Any]]:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        return read_json(self._path)

    def _take(self, data: Dict[str, Any]) -> None:
        self._seen["data"] = data
        try:
            spec = parse_spec(data)
        except ValueError as error:
            self.trouble = f"the spec is kept as it was: {error}"
            return
        self.trouble = ""
        if self.spec is None or spec.generation > self.spec.generation:
            self.spec = spec
