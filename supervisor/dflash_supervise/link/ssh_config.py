"""The user's ssh configuration, read by OpenSSH itself: `ssh -G` knows Include, Match, tokens and defaults."""

from __future__ import annotations

import getpass
import hashlib
import os
import pwd
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dflash_supervise.link.errors import ConfigRefused

_TIMEOUT_S = 30.0
_SEVERAL = frozenset({"identityfile", "certificatefile"})
# What would change whom we talk to or how, and this link does not do. Refused by name, never ignored.
_UNSUPPORTED = {"proxyusefdpass": "ProxyUseFdpass", "enablesshkeysign": "EnableSSHKeysign"}
_HOP = re.compile(r"(?:(?P<user>.+)@)?(?:\[(?P<v6>[^]]+)\]|(?P<host>[^:@]+))(?::(?P<port>\d+))?")


@dataclass(frozen=True, slots=True)
class Hop:
    """One name as written after ProxyJump."""

    host: str
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class HostConfig:
    """What OpenSSH would do for one host."""

    asked: str  # the name that was looked up: %n
    hostname: str
    port: int
    user: str
    jumps: tuple[Hop, ...]
    proxy_command: str | None  # tokens expanded
    identity_files: tuple[Path, ...]
    certificate_files: tuple[Path, ...]
    identities_only: bool
    identity_agent: str | None  # socket path; None: no agent
    public_key_auth: bool
    known_hosts: tuple[Path, ...]
    revoked_keys: Path | None
    known_as: str  # the name in known_hosts: HostKeyAlias, or hostname with [..]:port when it is not 22
    known_as_bare: str | None  # the name without port that OpenSSH accepts too

    def __str__(self) -> str:
        where = self.hostname if self.port == 22 else f"{self.hostname}:{self.port}"
        return where if self.asked == self.hostname else f"{self.asked} ({where})"


def resolve(
    host: str,
    *,
    user: str | None = None,
    port: int | None = None,
    config: Path | None = None,
    auth_sock: str | None = None,
) -> HostConfig:
    """Ask OpenSSH what its configuration says about a host.

    Args:
        config: in place of the user's and the system's files.
        auth_sock: what SSH_AUTH_SOCK is for this link; None takes it from the environment.

    Raises:
        ConfigRefused: no `ssh` here, a broken configuration, or one that asks for what we do not do.
    """
    words = ["ssh", "-G"]
    words += ["-F", str(config)] if config else []
    words += ["-l", user] if user else []
    words += ["-p", str(port)] if port else []
    found = _parse(_run([*words, "--", host]))
    for key, name in _UNSUPPORTED.items():
        if found.get(key, ["no"])[0] in ("yes", "true") and key == "proxyusefdpass":
            raise ConfigRefused(f"{host}: {name} is not supported", fix=f"set {name} no for this host")
    return _host_config(host, found, auth_sock)


def _host_config(host: str, found: dict[str, list[str]], auth_sock: str | None) -> HostConfig:
    def one(key: str, default: str = "none") -> str:
        return found.get(key, [default])[0]

    hostname, port, login = one("hostname", host), int(one("port", "22")), one("user", getpass.getuser())
    alias = one("hostkeyalias")
    tokens = _tokens(host, hostname, port, login, alias, one("proxyjump", ""))
    known_as, bare = hostname if port == 22 else f"[{hostname}]:{port}", None if port == 22 else hostname
    if alias != "none":
        known_as, bare = alias, None
    proxy, revoked = one("proxycommand"), one("revokedhostkeys")
    files = one("userknownhostsfile", "").split() + one("globalknownhostsfile", "").split()
    return HostConfig(
        asked=host,
        hostname=hostname,
        port=port,
        user=login,
        jumps=_jumps(host, one("proxyjump")),
        proxy_command=None if proxy == "none" else expand(proxy, tokens, "ProxyCommand"),
        identity_files=_paths(found.get("identityfile", []), tokens, "IdentityFile"),
        certificate_files=_paths(found.get("certificatefile", []), tokens, "CertificateFile"),
        identities_only=one("identitiesonly") == "yes",
        identity_agent=_agent_socket(one("identityagent", "SSH_AUTH_SOCK"), tokens, auth_sock),
        public_key_auth=one("pubkeyauthentication", "yes") not in ("no", "false"),
        known_hosts=_paths(files, tokens, "UserKnownHostsFile"),
        revoked_keys=None if revoked == "none" else _paths([revoked], tokens, "RevokedHostKeys")[0],
        known_as=known_as,
        known_as_bare=bare,
    )


def expand(text: str, tokens: dict[str, str], where: str) -> str:
    """Replace OpenSSH's %-tokens.

    Raises:
        ConfigRefused: a token that OpenSSH does not have there, or that we do not know.
    """

    def value(match: re.Match[str]) -> str:
        token = match[1]
        if token not in tokens:
            raise ConfigRefused(f"{where} uses %{token}, which is not known", fix=f"write {where} without it")
        return tokens[token]

    return re.sub(r"%(.?)", value, text)


def home() -> Path:
    """As OpenSSH sees it: from the user database, not from HOME."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def _run(words: list[str]) -> str:
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise ConfigRefused(
            "this machine has no ssh command to read the ssh configuration with", fix="install the OpenSSH client"
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigRefused(f"`{' '.join(words)}` took more than {_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise ConfigRefused(f"`{' '.join(words)}` failed: {done.stderr.strip()}", fix="mend the ssh configuration")
    return done.stdout


def _parse(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in _SEVERAL:
            found.setdefault(key, []).append(value)
        else:
            found.setdefault(key, [value])
    return found


def _tokens(host: str, hostname: str, port: int, login: str, alias: str, jump: str) -> dict[str, str]:
    local = socket.gethostname()
    whole = hashlib.sha1(f"{local}{hostname}{port}{login}{jump}".encode(), usedforsecurity=False).hexdigest()
    return {
        "%": "%",
        "h": hostname,
        "p": str(port),
        "r": login,
        "n": host,
        "d": str(home()),
        "i": str(os.getuid()),
        "u": getpass.getuser(),
        "l": local,
        "L": local.split(".")[0],
        "k": alias if alias != "none" else host,
        "j": jump,
        "C": whole,
    }


def _paths(words: list[str], tokens: dict[str, str], where: str) -> tuple[Path, ...]:
    return tuple(_path(word, tokens, where) for word in words if word not in ("none", ""))


def _path(word: str, tokens: dict[str, str], where: str) -> Path:
    word = re.sub(r"\$\{(\w+)\}", lambda m: os.environ.get(m[1], ""), expand(word, tokens, where))
    return home() / word[2:] if word.startswith("~/") else Path(word).expanduser()


def _agent_socket(word: str, tokens: dict[str, str], auth_sock: str | None) -> str | None:
    environment = {**os.environ, **({"SSH_AUTH_SOCK": auth_sock} if auth_sock else {})}
    if word == "none":
        return None
    if word == "SSH_AUTH_SOCK":
        return environment.get("SSH_AUTH_SOCK") or None
    if word.startswith("$"):
        return environment.get(word.strip("${}")) or None
    return str(_path(word, tokens, "IdentityAgent"))


def _jumps(host: str, text: str) -> tuple[Hop, ...]:
    if text in ("none", ""):
        return ()
    hops = []
    for word in text.split(","):
        match = _HOP.fullmatch(word.strip().removeprefix("ssh://").rstrip("/"))
        if match is None:
            raise ConfigRefused(f"{host}: ProxyJump {word!r} is no host", fix="write [user@]host[:port]")
        port = int(match["port"]) if match["port"] else None
        hops.append(Hop(host=match["v6"] or match["host"], user=match["user"], port=port))
    return tuple(hops)
