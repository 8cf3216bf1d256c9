"""One shape for what goes wrong: what happened, what to do, and the exit status."""

from __future__ import annotations

import difflib
from typing import Any

import click

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


def from_usage(error: click.ClickException, command: str) -> CliError:
    """What the option parser found wrong, in our words; ``command`` is what has a --help to see."""
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx is not None else command
    return CliError(_said(error), fix=f"see {path} --help", exit_code=exits.USAGE, code="usage")


def _said(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        near = [name for name in error.possibilities or () if _alike(name, error.option_name)]
        return f"there is no option {error.option_name}" + did_you_mean(near)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{_name(error.param)} is missing"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_name(error.param)}: {_plain(error.message)}"
    return _plain(error.format_message())


def did_you_mean(near: list[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _alike(one: str, other: str) -> bool:
    """Without the dashes: they alone make any two short options look alike."""
    return difflib.SequenceMatcher(None, one.lstrip("-"), other.lstrip("-")).ratio() >= 0.6


def _name(param: click.Parameter) -> str:
    return max(param.opts, key=len) if isinstance(param, click.Option) else (param.name or "argument").upper()


def _plain(message: str) -> str:
    """Without capital and full stop, as all our messages are."""
    return message[:1].lower() + message[1:].rstrip(".")


def _further(error: dict[str, Any]) -> dict[str, Any] | None:
    """What an error says beyond the four usual keys: a host key error names the key."""
    usual = ("code", "message", "fix", "exit_code", "evidence")
    return {key: value for key, value in error.items() if key not in usual} or None


class Detached(Exception):
    """Ctrl-C while we only watched: what goes on, and how to come back. Exit status 130."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
