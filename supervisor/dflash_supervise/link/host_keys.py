"""Is this key the host's? Strict: only what a person accepted, looked up by OpenSSH's own matcher.

`ssh-keygen -F` knows hashed, wildcard, negated and marked lines, and skips what it cannot read. We add keys
to our own file only, by appending; the user's files are never written.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dflash_supervise.link.errors import ConfigRefused, HostKeyChanged, HostKeyRevoked, HostKeyUnknown, LinkError
from dflash_supervise.link.ssh_config import HostConfig

_TIMEOUT_S = 30.0
_MARKERS = ("@cert-authority", "@revoked")


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public key: its type as in known_hosts, and the blob that the protocol sends."""

    type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As ssh prints it: SHA256 and base64 without padding."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    @property
    def line(self) -> str:
        return f"{self.type} {base64.b64encode(self.blob).decode()}"


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """What the known_hosts files say about one name."""

    trusted: tuple[HostKey, ...]
    trusted_bare: tuple[HostKey, ...]  # known for the name without its port
    revoked: tuple[HostKey, ...]
    by_authority: bool
    where: str  # the files that name the host, for a person

    def types(self) -> tuple[str, ...]:
        """Key types to ask the server for first: what we can compare."""
        return tuple(dict.fromkeys(key.type for key in (*self.trusted, *self.trusted_bare)))


def look_up(config: HostConfig, own_file: Path) -> KnownKeys:
    """Search our own file and those of the ssh configuration."""
    found: dict[str, list[HostKey]] = {"": [], "@revoked": [], "@cert-authority": []}
    bare: list[HostKey] = []
    where = []
    for file in (own_file, *config.known_hosts):
        if not file.is_file():
            continue
        before = sum(map(len, found.values()))
        for marker, key in _search(config.known_as, file):
            found[marker].append(key)
        if sum(map(len, found.values())) > before:
            where.append(str(file))
        if config.known_as_bare:
            bare += [key for marker, key in _search(config.known_as_bare, file) if marker == ""]
    return KnownKeys(
        trusted=tuple(found[""]),
        trusted_bare=tuple(bare),
        revoked=tuple(found["@revoked"]),
        by_authority=bool(found["@cert-authority"]),
        where=", ".join(where),
    )


def check(config: HostConfig, known: KnownKeys, got: HostKey) -> LinkError | None:
    """None when the key is trusted, else what is wrong with it."""
    name, what = config.known_as, f"{got.type} {got.fingerprint}"

    def error(kind: type[HostKeyUnknown | HostKeyChanged | HostKeyRevoked], text: str, fix: str) -> LinkError:
        return kind(text, name=name, key_type=got.type, fingerprint=got.fingerprint, fix=fix)

    if got in known.revoked or (config.revoked_keys and _in_revocation_list(config.revoked_keys, got)):
        return error(HostKeyRevoked, f"the host key of {name} is revoked: {what}", "do not connect to this host")
    if got in known.trusted or got in known.trusted_bare:
        return None
    if known.trusted:
        return error(
            HostKeyChanged,
            f"the host key of {name} has changed to {what}; another one is known in {known.where}",
            "if the host was reinstalled, check the new fingerprint with whoever runs it and remove the old "
            f"line: ssh-keygen -R '{name}' -f FILE",
        )
    if known.by_authority:
        return ConfigRefused(
            f"{name} is known by a host certificate authority, which this link cannot check; its key is {what}",
            fix=f"check the fingerprint, then accept the key itself: {_trust_command(config, got)}",
        )
    return error(
        HostKeyUnknown,
        f"the host key of {name} is not known: {what}",
        f"compare the fingerprint with the host's, then: {_trust_command(config, got)}",
    )


def append(file: Path, name: str, key: HostKey) -> None:
    """Accept a key for a name, in our own file."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(descriptor, "a") as known:
        known.write(f"{name} {key.line}\n")
        known.flush()
        os.fsync(descriptor)


def _trust_command(config: HostConfig, key: HostKey) -> str:
    return f"dflash-supervise host trust {config.asked}:/ --fingerprint {key.fingerprint}"


def _search(name: str, file: Path) -> Iterable[tuple[str, HostKey]]:
    for line in _keygen("-F", name, "-f", str(file)).stdout.splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        marker = words.pop(0) if words[0] in _MARKERS else ""
        if len(words) < 3:
            continue
        try:
            yield marker, HostKey(words[1], base64.b64decode(words[2], validate=True))
        except ValueError:
            # OpenSSH skips such a line too.
            continue


def _in_revocation_list(file: Path, key: HostKey) -> bool:
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as public:
        public.write(key.line + "\n")
        public.flush()
        # Anything but "not revoked" counts: OpenSSH refuses too when the list cannot be read.
        return _keygen("-Q", "-f", str(file), public.name).returncode != 0


def _keygen(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["ssh-keygen", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise ConfigRefused(
            "this machine has no ssh-keygen to read known_hosts with", fix="install the OpenSSH client"
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigRefused(f"`ssh-keygen {' '.join(words)}` took more than {_TIMEOUT_S:.0f} s") from None
