"""Which keys are offered, and in which order: OpenSSH's, with at most five tries.

Agent keys that the configuration names, then the agent's other keys (unless IdentitiesOnly), then key
files. A server hangs up after MaxAuthTries (six by default), so when there are too many the agent's
unnamed keys give way to the files that the configuration names.
"""

from __future__ import annotations

import base64
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.agent import AgentSSH

from dflash_supervise.link.closer import Closer
from dflash_supervise.link.errors import AuthFailed
from dflash_supervise.link.ssh_config import HostConfig

MOST_KEYS = 5
_AGENT_TIMEOUT_S = 20.0  # a person may have to touch a token


@dataclass(frozen=True)
class _Candidate:
    name: str
    key: Any


class _Agent(AgentSSH):  # type: ignore[misc]  # paramiko has no types
    """An SSH agent at a socket of our choice; paramiko's own knows only the process's SSH_AUTH_SOCK."""

    def __init__(self, path: str) -> None:
        super().__init__()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_AGENT_TIMEOUT_S)
        try:
            connection.connect(path)
            self._connect(connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self._close()


def authenticate(transport: Any, config: HostConfig, closer: Closer) -> None:
    """Log in with public keys.

    Raises:
        AuthFailed: none was accepted; it names each and what came of it.
    """
    tried: list[str] = []
    for candidate in _candidates(config, closer, tried):
        try:
            further = transport.auth_publickey(config.user, candidate.key)
        except paramiko.AuthenticationException as error:
            tried.append(f"{candidate.name}: {_why(error)}")
            if isinstance(error, paramiko.BadAuthenticationType):
                raise _failed(config, tried, "the server takes no public keys") from error
        except (paramiko.SSHException, EOFError, OSError, ValueError) as error:
            tried.append(f"{candidate.name}: {_why(error)}")
        else:
            if not further:
                return
            tried.append(f"{candidate.name}: accepted, and the server also wants {', '.join(further)}")
            raise _failed(config, tried, "the server wants more than a key")
        if not transport.is_active():
            raise _failed(config, tried, f"the server hung up after {len(tried)} keys")
    raise _failed(config, tried, "no key was accepted" if tried else "there is no key to try")


def _candidates(config: HostConfig, closer: Closer, tried: list[str]) -> list[_Candidate]:
    if not config.public_key_auth:
        tried.append("PubkeyAuthentication is off in the ssh configuration")
        return []
    in_agent = {key.blob: key for key in _agent_keys(config, closer, tried)}
    named: list[_Candidate] = []
    files: list[_Candidate] = []
    for file in config.identity_files:
        held = in_agent.pop(_public_blob(file) or b"", None)
        if held is not None:
            named.append(_Candidate(f"{file} (agent)", held))
        else:
            files += _from_file(file, config, tried)
    others = (
        []
        if config.identities_only
        else [_Candidate(f"agent key {key.comment or key.fingerprint}", key) for key in in_agent.values()]
    )
    room = max(0, MOST_KEYS - len(named) - len(files))
    tried += [f"{candidate.name}: not tried, too many keys" for candidate in others[room:]]
    return [*named, *others[:room], *files][:MOST_KEYS]


def _agent_keys(config: HostConfig, closer: Closer, tried: list[str]) -> tuple[Any, ...]:
    if config.identity_agent is None:
        return ()
    try:
        agent = _Agent(config.identity_agent)
    except (OSError, paramiko.SSHException) as error:
        tried.append(f"agent at {config.identity_agent}: {_why(error)}")
        return ()
    closer.add(agent.close)
    keys: tuple[Any, ...] = agent.get_keys()
    return keys


def _from_file(file: Path, config: HostConfig, tried: list[str]) -> Iterator[_Candidate]:
    try:
        status = file.stat()
    except OSError:
        return  # most of OpenSSH's default names do not exist
    if file.suffix == ".pub":
        tried.append(f"{file}: only the public half, and no agent holds the other")
        return
    if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
        tried.append(f"{file}: not tried, others can read it (chmod 600 {file})")
        return
    try:
        key = paramiko.PKey.from_path(file)
        yield _Candidate(str(file), _with_certificate(key, config))
    except (paramiko.PasswordRequiredException, TypeError):
        # cryptography says TypeError when a passphrase is missing.
        tried.append(f"{file}: needs a passphrase (ssh-add {file})")
    except (ValueError, OSError, paramiko.SSHException, paramiko.UnknownKeyType) as error:
        tried.append(f"{file}: cannot be used here ({_why(error)})")


def _with_certificate(key: Any, config: HostConfig) -> Any:
    """Attach the CertificateFile made for this key; `<key>-cert.pub` beside the key is attached already."""
    for file in config.certificate_files:
        blob = _public_blob(file)
        if key.public_blob is None and blob and _names_key(blob, key):
            key.load_certificate(str(file))
    return key


def _names_key(certificate: bytes, key: Any) -> bool:
    # A certificate holds the key's own numbers as they stand in the plain blob after the type's name.
    plain = key.asbytes()
    return plain[4 + int.from_bytes(plain[:4], "big") :] in certificate


def _public_blob(file: Path) -> bytes | None:
    public = file if file.suffix == ".pub" else file.with_name(file.name + ".pub")
    try:
        return base64.b64decode(public.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _failed(config: HostConfig, tried: list[str], what: str) -> AuthFailed:
    listed = "; ".join(tried) or "the ssh configuration names no key that exists, and no agent holds one"
    return AuthFailed(
        f"{config.user}@{config} did not let us in: {what} ({listed})",
        tried=tuple(tried),
        fix=f"check that `ssh {config.user}@{config.asked}` works without a password; an encrypted key must be "
        "in the agent (ssh-add)",
    )


def _why(error: BaseException) -> str:
    return (str(error) or type(error).__name__).rstrip(".")
