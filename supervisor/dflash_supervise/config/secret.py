"""A value that must never be printed: kept as its source, read when it is used."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dflash_supervise.config.problem import ConfigError

COMMAND_LIMIT_S = 20.0


@dataclass(frozen=True)
class Secret:
    """Where a secret comes from. ``reveal`` reads it; repr, str and logs show only the source."""

    kind: str  # literal, file, env, command
    source: tuple[str, ...] = field(repr=False)
    key: str = ""
    where: str = ""

    def __str__(self) -> str:
        return "<hidden>" if self.kind == "literal" else f"<hidden, from {self.kind}>"

    def describe(self) -> str:
        """What ``config show`` prints: the source, never the value."""
        return str(self) if self.kind == "literal" else f"<hidden, from {self.kind} {' '.join(self.source)}>"

    def reveal(self) -> str:
        """The secret's text without the newline at its end.

        Raises:
            ConfigError: the file, variable or command gives nothing.
        """
        text = self._read().rstrip("\r\n")
        if not text:
            raise self._problem("is empty", "give it a value or remove the key")
        return text

    def _read(self) -> str:
        if self.kind == "literal":
            return self.source[0]
        if self.kind == "env":
            return os.environ.get(self.source[0], "")
        if self.kind == "file":
            try:
                return Path(self.source[0]).expanduser().read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
                raise self._problem(f"cannot read {self.source[0]}: {why}", "check the path and its mode") from error
        return self._run()

    def _run(self) -> str:
        try:
            done = subprocess.run(
                list(self.source),
                capture_output=True,
                text=True,
                timeout=COMMAND_LIMIT_S,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            text = f"command {self.source[0]} did not end within {COMMAND_LIMIT_S:g} s"
            raise self._problem(text, "try it in a shell") from error
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in it, or output that is no text
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise self._problem(f"command {self.source[0]} did not run: {why}", "try it in a shell") from error
        if done.returncode != 0:
            raise self._problem(f"command {self.source[0]} ended with {done.returncode}", "try it in a shell")
        return done.stdout

    def _problem(self, what: str, fix: str) -> ConfigError:
        return ConfigError(what, where=self.where or "configuration", key=self.key, fix=fix)


def parse(value: object, *, key: str, where: str) -> Secret:
    """A secret from its TOML value: a string, or a table with exactly one of file, env, command.

    Raises:
        ConfigError: any other shape.
    """
    if isinstance(value, str):
        return Secret("literal", (value,), key, where)
    if isinstance(value, Mapping) and len(value) == 1:
        kind, source = next(iter(value.items()))
        if kind in ("file", "env") and isinstance(source, str) and source:
            return Secret(kind, (source,), key, where)
        if kind == "command" and isinstance(source, list) and source and all(isinstance(a, str) for a in source):
            return Secret("command", tuple(source), key, where)
    raise ConfigError(
        'must be a string, { file = "path" }, { env = "NAME" } or { command = ["program", "argument"] }',
        where=where,
        key=key,
    )
