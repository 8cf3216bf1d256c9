"""Work that takes a while (start, adopt, doctor): a thread each, with lines to watch and one outcome."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dflash_supervise.link.errors import LinkError
from dflash_supervise.web.control import Refused

Doc = dict[str, Any]

log = logging.getLogger(__name__)

KEPT = 100


class Failed(Exception):
    """An operation ends without what was asked; the text is for the person who asked."""

    def __init__(self, code: str, message: str, *, fix: str = "", exit_code: int = 5, evidence: Any = None) -> None:
        super().__init__(message)
        self.doc = {"code": code, "message": message, "fix": fix, "exit_code": exit_code}
        if evidence is not None:
            self.doc["evidence"] = evidence


@dataclass
class Operation:
    """One piece of work under way. Only its own thread writes; readers take what is there."""

    id: str
    kind: str
    lines: list[str] = field(default_factory=list)
    state: str = "running"  # running, done, failed
    run_id: str | None = None
    error: Doc | None = None
    result: Doc = field(default_factory=dict)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def doc(self) -> Doc:
        doc: Doc = {
            "operation": self.id,
            "kind": self.kind,
            "state": self.state,
            "lines": list(self.lines),
            "run_id": self.run_id,
            "error": self.error,
        }
        return {**doc, **self.result}


class Operations:
    """The operations of this daemon; forgotten when it ends, what they began lives in store and host."""

    def __init__(self) -> None:
        self._known: dict[str, Operation] = {}
        self._lock = threading.Lock()

    def begin(self, kind: str, work: Callable[[Operation], None]) -> str:
        """Start the work in a thread of its own; the operation's id."""
        operation = Operation(secrets.token_hex(6), kind)
        with self._lock:
            self._known[operation.id] = operation
            over = [key for key, one in self._known.items() if one.state != "running"]
            for key in over[: max(0, len(self._known) - KEPT)]:
                del self._known[key]
        threading.Thread(target=_run, args=(operation, work), name=f"{kind}-{operation.id}", daemon=True).start()
        return operation.id

    def get(self, operation_id: str) -> Doc | None:
        with self._lock:
            found = self._known.get(operation_id)
        return found.doc() if found else None


def _run(operation: Operation, work: Callable[[Operation], None]) -> None:
    try:
        work(operation)
    except Failed as error:
        operation.error = error.doc
    except Refused as error:
        operation.error = error.as_doc()["error"]
    except LinkError as error:
        operation.error = error.as_dict()
    except Exception as error:
        log.exception("an operation failed by a fault of ours kind=%s id=%s", operation.kind, operation.id)
        operation.error = {
            "code": "internal",
            "message": f"the daemon failed at this: {type(error).__name__}: {error}",
            "fix": "its log tells more: dflash-supervise daemon status names the file",
            "exit_code": 1,
        }
    operation.state = "failed" if operation.error else "done"
