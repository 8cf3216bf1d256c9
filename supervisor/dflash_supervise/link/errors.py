"""What can go wrong between this machine and a host, each with what was seen and what to do about it.

Every error here is the world's: it becomes the cause of `host_unreachable` or the answer to a command,
never a traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

CHECK_FAILED = 5
REFUSED = 6

# Answers of the agent that mean "will not", where every other one means "could not".
_REFUSALS = frozenset({"spec_conflict", "unsafe_workspace", "unsafe_runtime"})


class LinkError(Exception):
    """The host could not be reached, or did not do what it was asked.

    Attributes:
        code: one word for programs, stable.
        message: one sentence with what was seen.
        fix: what a person can do, one sentence; empty when only waiting helps.
        exit_code: the exit code of a command that ends because of it.
        needs_person: trying again soon cannot help.
    """

    default_code: ClassVar[str] = "link"
    needs_person: ClassVar[bool] = False

    def __init__(self, message: str, *, fix: str = "", code: str = "", exit_code: int = CHECK_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.code = code or self.default_code
        self.exit_code = exit_code

    @property
    def evidence(self) -> dict[str, Any]:
        """What a person wants to see beside the message: a key's fingerprint, the keys that were tried."""
        return {}

    def as_dict(self) -> dict[str, Any]:
        """The error as it is shown to programs: code, message, fix, exit_code, and evidence if there is any."""
        shown = {"code": self.code, "message": self.message, "fix": self.fix, "exit_code": self.exit_code}
        return {**shown, "evidence": self.evidence} if self.evidence else shown


class ConfigRefused(LinkError):
    """The ssh configuration cannot be read, or asks for what this link cannot do."""

    default_code = "ssh_config"
    needs_person = True


class Unreachable(LinkError):
    """No connection: unknown name, no route, no answer, or a connection that went silent."""

    default_code = "unreachable"


class Refused(LinkError):
    """The machine answers, and nothing listens on the port."""

    default_code = "refused"


class NoBanner(LinkError):
    """The port is open, and no SSH server speaks there."""

    default_code = "no_banner"


class HandshakeFailed(LinkError):
    """Both sides speak SSH and find no common ground."""

    default_code = "handshake"
    needs_person = True


class _HostKeyError(LinkError):
    needs_person = True

    def __init__(self, message: str, *, name: str, key_type: str, fingerprint: str, fix: str) -> None:
        super().__init__(message, fix=fix)
        self.name = name
        self.key_type = key_type
        self.fingerprint = fingerprint

    @property
    def evidence(self) -> dict[str, Any]:
        """The name in known_hosts, the key's type and its fingerprint."""
        return {"name": self.name, "key_type": self.key_type, "fingerprint": self.fingerprint}


class HostKeyUnknown(_HostKeyError):
    """First contact: nobody has said yet that this key is the host's."""

    default_code = "host_key_unknown"


class HostKeyChanged(_HostKeyError):
    """Another key is known for this name. A reinstalled host, or somebody in between."""

    default_code = "host_key_changed"


class HostKeyRevoked(_HostKeyError):
    """The key is marked as revoked."""

    default_code = "host_key_revoked"


class AuthFailed(LinkError):
    """The host accepted none of our keys. `tried` says which, and what came of each."""

    default_code = "auth"
    needs_person = True

    def __init__(self, message: str, *, tried: tuple[str, ...], fix: str) -> None:
        super().__init__(message, fix=fix)
        self.tried = tried

    @property
    def evidence(self) -> dict[str, Any]:
        """The keys that were tried."""
        return {"tried": list(self.tried)}


class NoChannel(LinkError):
    """The connection stands, and the server opens no session on it."""

    default_code = "no_channel"


class ShellRefuses(LinkError):
    """The login shell ended before it ran our command."""

    default_code = "shell_refuses"
    needs_person = True


class NoPython(LinkError):
    """No Python 3.8 or newer where we looked."""

    default_code = "no_python"
    needs_person = True


class AgentSilent(LinkError):
    """The host is reached, and the agent on it says nothing."""

    default_code = "agent_silent"


class ShellSilent(AgentSilent):
    """The login shell never came to our command.

    Each try leaves one more waiting shell on the host, so tries are rare.
    """

    needs_person = True


class RequestTimeout(LinkError):
    """The agent lives and did not answer one request in time."""

    default_code = "request_timeout"


class WorkspaceNotWritable(LinkError):
    """Neither the workspace nor the runtime folder takes our files."""

    default_code = "workspace_not_writable"
    needs_person = True


class LinkClosed(LinkError):
    """This side closed the link."""

    default_code = "link_closed"


class InternalError(LinkError):
    """A fault of ours ended the connection; it is logged with its traceback."""

    default_code = "internal"


class AgentRefusal(LinkError):
    """The agent's own answer to a request: code, message and fix come from the host."""

    def __init__(self, code: str, message: str, *, fix: str = "", facts: Mapping[str, Any] | None = None) -> None:
        exit_code = REFUSED if code in _REFUSALS else CHECK_FAILED
        super().__init__(message, fix=fix, code=code, exit_code=exit_code)
        self.facts = dict(facts or {})

    @property
    def evidence(self) -> dict[str, Any]:
        """What the agent sent beside the message, such as the owner and generation of a spec."""
        return self.facts


def agent_refusal(line: Mapping[str, Any]) -> AgentRefusal:
    """The error inside an agent's line: {"error": {"code", "message", "fix"}}."""
    told = line.get("error") or {}
    return AgentRefusal(
        str(told.get("code", "agent_error")),
        str(told.get("message", "the agent gave no reason")),
        fix=str(told.get("fix", "")),
        facts={key: value for key, value in told.items() if key not in ("code", "message", "fix")},
    )
