"""One shape for what goes wrong: what happened, what to do, and the exit status."""

from __future__ import annotations

from typing import Any

from dflash_supervise.cli import exits


class CliError(Exception):
    """A message for the user, the way out of it, and the exit status that a script sees.

    code is a short stable word; evidence is what the daemon sent along (a fingerprint, a list of holders).
    """

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        exit_code: int = exits.TOOL_FAILED,
        code: str = "failed",
        evidence: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.exit_code = exit_code
        self.code = code
        self.evidence = evidence

    def document(self) -> dict[str, Any]:
        """The error as ``--json`` prints it."""
        body = {"code": self.code, "message": self.message, "fix": self.fix, "exit_code": self.exit_code}
        if self.evidence is not None:
            body["evidence"] = self.evidence
        return {"schema": 1, "error": body}


def from_document(error: dict[str, Any]) -> CliError:
    """The daemon's error object (``code``, ``message``, ``fix``, ``exit_code``) as an exception."""
    return CliError(
        str(error.get("message") or "the daemon refused and did not say why"),
        fix=str(error.get("fix") or ""),
        exit_code=int(error.get("exit_code") or exits.TOOL_FAILED),
        code=str(error.get("code") or "failed"),
        evidence=error.get("evidence") or _further(error),
    )


def _further(error: dict[str, Any]) -> dict[str, Any] | None:
    """What an error says beyond the four usual keys: a host key error names the key."""
    usual = ("code", "message", "fix", "exit_code", "evidence")
    return {key: value for key, value in error.items() if key not in usual} or None


class Detached(Exception):
    """Ctrl-C while we only watched: what goes on, and how to come back. Exit status 130."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
