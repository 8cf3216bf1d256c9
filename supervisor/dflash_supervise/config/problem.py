"""The one error of the configuration: the user's mistake, so it says where and what to do."""

from __future__ import annotations


class ConfigError(ValueError):
    """A wrong, unknown or unreadable setting.

    Attributes:
        where: file, variable or flag the value came from.
        key: dotted name ("daemon.port"), empty when the whole file is unreadable.
        fix: what to do about it, one sentence.
    """

    exit_code = 2
    code = "config_error"

    def __init__(self, what: str, *, where: str, key: str = "", fix: str = "") -> None:
        super().__init__(f"{where}: {key + ': ' if key else ''}{what}" + (f" ({fix})" if fix else ""))
        self.message = str(self)
        self.where = where
        self.key = key
        self.fix = fix
