"""The two things the dashboard is handed: something to read from, and something to ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Doc = dict[str, Any]  # one JSON object in the shape that the API documents


class Refused(Exception):
    """The daemon says no, in words for the person who asked.

    ``code`` is stable and for programs, ``message`` says what is wrong, ``fix`` what to do about it, ``exit_code`` is
    what the command line ends with, ``http_status`` what the API answers.
    """

    def __init__(self, code: str, message: str, fix: str = "", *, exit_code: int = 6, http_status: int = 409) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.exit_code = exit_code
        self.http_status = http_status

    def as_doc(self) -> Doc:
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "fix": self.fix,
                "exit_code": self.exit_code,
            }
        }


class Reads(Protocol):
    """The store as the dashboard sees it. Synchronous, thread-safe; ages are those at the moment of reading."""

    def runs(self) -> list[Doc]: ...

    def run(self, name: str) -> Doc | None:
        """A run by its id, or the newest run of that name."""

    def why(self, run_id: str) -> Doc | None:
        """``{"run", "verdict", "readings", "incidents", "attempts", "age_s"}``, open incidents first.

        The verdict is as it was told ``run.verdict_age_s`` ago, and each incident ``told_age_s`` ago: ages of evidence
        and the seconds in ``next`` count from then.
        """

    def records(
        self,
        run_id: str,
        *,
        after: int = 0,
        kinds: Sequence[str] = (),
        limit: int = 500,
        newest: bool = False,
    ) -> list[Doc]:
        """Records in ascending order of ``row``; with ``newest`` the last ``limit`` instead of the first."""

    def log(
        self,
        run_id: str,
        *,
        attempt: int | None = None,
        offset: int | None = None,
        limit: int = 65536,
        tail: int | None = None,
    ) -> Doc | None:
        """``{"attempt", "offset", "next", "size", "text"}`` of one look, in bytes; ``next`` is where to go on.

        No offset means the last ``limit`` bytes, of which ``tail`` keeps so many lines.
        """

    def series(self, run_id: str, *, since_s: float) -> Doc:
        """``{"t", "loss", "tokens_per_s", "gpus"}``; ``t`` in Unix seconds, equally long lists, None for missing."""

    def incidents(self) -> list[Doc]: ...

    def last_row(self) -> int: ...

    def feed(self, after: int, limit: int) -> list[Doc]:
        """``[{"row", "run", "record"}]`` of all runs, ascending."""


class Control(Protocol):
    """The daemon as the dashboard sees it. Every method may raise ``Refused``."""

    def start(self, request: Doc) -> str:
        """Begin a start; the id of an operation."""

    def operation(self, operation_id: str) -> Doc | None: ...

    def set_goal(self, run_id: str, goal: Doc) -> Doc:
        """``{"generation", "acknowledged"}``."""

    def adopt(self, request: Doc) -> str: ...

    def doctor(self, request: Doc) -> str: ...

    def trust(self, target: str, fingerprint: str) -> Doc: ...

    def hosts(self) -> list[Doc]:
        """``[{"host", "target", "status", "since_at", "age_s", "error"}]``."""

    def shutdown(self) -> None: ...
