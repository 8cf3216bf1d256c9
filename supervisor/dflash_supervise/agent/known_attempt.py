"""The newest attempt that this host has seen of a run, remembered where no workspace can lose it.

Without it a deleted run directory would make a living trainer a stranger: nobody could stop it any more.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Dict, Optional

from dflash_supervise.agent import shapes
from dflash_supervise.agent.files import read_json, write_json
from dflash_supervise.agent.shapes import is_a
from dflash_supervise.agent.workspace import WorkspaceLook
from dflash_supervise.core.facts import Missing

GONE = "the run directory is gone"


class KnownAttempt:
    """Completes looks at a run directory that has forgotten its newest attempt."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: Dict[str, Any] = _recall(path)

    def alone(self, now_s: float) -> Optional[WorkspaceLook]:
        """What this host knows while the workspace has not answered yet: enough to stop the attempt."""
        if not self._known["attempt"]:
            return None
        known = self._known
        return WorkspaceLook(now_s, True, attempts=(known["attempt"],), launch=known["launch"], child=known["child"])

    def complete(self, look: WorkspaceLook) -> WorkspaceLook:
        """The look, with the attempt that it lacks; ``lost`` says so then."""
        number: int = self._known["attempt"]
        if look.child is not None and look.newest >= number:
            found = {"attempt": look.newest, "launch": look.launch, "child": look.child}
            if found != self._known:
                self._known = found
                with suppress(OSError):  # this agent knows it all the same
                    write_json(self._path, found)
        if number == 0 or look.newest > number or (look.newest == number and look.child is not None):
            return look if look.there else replace(look, lost=GONE)
        why = f"attempt {number} ran here and is gone from the run directory" if look.there else GONE
        look = replace(look, lost=why, launch=self._known["launch"], child=self._known["child"])
        if look.newest == number:
            return look
        attempts = (*(older for older in look.attempts if older < number), number)
        blind = Missing(why)
        return replace(look, attempts=attempts, exit=None, done=False, progress=blind, log=blind, log_behind=False)


def _recall(path: str) -> Dict[str, Any]:
    saved = read_json(path) or {}
    found = {key: saved.get(key) for key in ("attempt", "launch", "child")}
    objects = all(found[key] is None or isinstance(found[key], dict) for key in ("launch", "child"))
    if not is_a(found["attempt"], int) or not objects or shapes.child(found["child"]) is None:
        return {"attempt": 0}
    return dict(found, launch=shapes.launch(found["launch"]))
