"""The target grammar: `[user@]host[:port]:/abs/path`, and `local:/abs/path` for this machine without SSH."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

_GRAMMAR = "[user@]host[:port]:/abs/path or local:/abs/path"
_HEAD = re.compile(
    r"""
    (?:(?P<user>[^@\s]+)@)?
    (?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^@:\[\]\s]+))
    (?::(?P<port>[0-9]+))?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class HostTarget:
    """A workspace on a host. `host` may be an alias of the user's ssh configuration.

    user, port: None leaves the choice to the ssh configuration.
    """

    host: str
    workspace: str
    user: str | None = None
    port: int | None = None
    local: bool = False

    @property
    def key(self) -> str:
        """Names the host without the workspace: targets with one key share one link."""
        if self.local:
            return "local"
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{user}{host}{port}"

    def __str__(self) -> str:
        return f"{self.key}:{self.workspace}"


def parse_target(text: str) -> HostTarget:
    """Read a target as a person writes it.

    Raises:
        ValueError: the text is no target; the message says what is wrong and what would be right.
    """
    if any(ord(c) < 0x20 or ord(c) == 0x7F for c in text):
        raise ValueError(f"target {text!r}: control characters are not allowed")
    head, slash, tail = text.partition(":/")
    if not slash:
        raise ValueError(f"target {text!r}: no absolute path after a colon; write {_GRAMMAR}")
    workspace = posixpath.normpath("/" + tail.lstrip("/"))
    if head == "local":
        return HostTarget(host="local", workspace=workspace, local=True)
    match = _HEAD.fullmatch(head)
    if match is None:
        raise ValueError(f"target {text!r}: {head!r} is no host; write {_GRAMMAR}, IPv6 in brackets")
    user, host = match["user"], match["v6"] or match["host"]
    for what, word in (("host", host), ("user", user or "")):
        # ssh reads such a word as an option.
        if word.startswith("-"):
            raise ValueError(f"target {text!r}: a {what} cannot start with '-'")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 1 <= port <= 65535:
        raise ValueError(f"target {text!r}: port {port} is outside 1 to 65535")
    return HostTarget(host=host, workspace=workspace, user=user, port=port)
