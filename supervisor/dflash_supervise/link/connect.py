"""A paramiko transport that goes where the user's own `ssh` would go, hop by hop, over sockets of our own."""

from __future__ import annotations

import logging
import socket
import threading
from typing import Any

import paramiko

from dflash_supervise.config.target import HostTarget
from dflash_supervise.link import errors
from dflash_supervise.link.auth import authenticate
from dflash_supervise.link.closer import Closer
from dflash_supervise.link.host_keys import HostKey, append, check, look_up
from dflash_supervise.link.proxy import ProxySocket
from dflash_supervise.link.settings import LinkSettings
from dflash_supervise.link.ssh_config import Hop, HostConfig, resolve

_MOST_HOPS = 8
_HANDSHAKES_AT_ONCE = 4  # a server's default MaxStartups begins to refuse at ten, and others connect too
_KEEPALIVE_S = 5
_USER_TIMEOUT_MS = 15_000
_CHECK_S = 1.0  # paramiko wakes each transport ten times a second to see whether it was closed

# It prints tracebacks of its own for every lost connection; what matters is raised to us.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

_gates: dict[str, threading.BoundedSemaphore] = {}
_gates_lock = threading.Lock()


def connect(target: HostTarget, settings: LinkSettings, closer: Closer) -> Any:
    """An authenticated paramiko.Transport; everything that it stands on is in the closer.

    Raises:
        LinkError: what stopped it, with the hop's name.
    """
    return _Route(settings, closer, accept=None).to(Hop(target.host, target.user, target.port))


def trust(target: HostTarget, fingerprint: str, settings: LinkSettings) -> HostKey:
    """Accept the key that the host shows now, if its fingerprint is the given one; into our own file only.

    On the way through jump hosts the fingerprint may be that of a hop; trusting goes hop by hop.

    Raises:
        HostKeyUnknown: the key shown has another fingerprint, or a further hop is unknown.
        HostKeyChanged, HostKeyRevoked: a person must remove the old key first.
        LinkError: the host cannot be reached.
    """
    closer = Closer()
    late = errors.Unreachable(f"{target.key} did not answer in time")
    try:
        with closer.limit(settings.connect_timeout_s * 3, late):
            route = _Route(settings, closer, accept=fingerprint)
            return route.key_of(Hop(target.host, target.user, target.port))
    finally:
        closer.close()


class _Route:
    """One way to one host, under way."""

    def __init__(self, settings: LinkSettings, closer: Closer, accept: str | None) -> None:
        self._settings = settings
        self._closer = closer
        self._accept = accept

    def to(self, hop: Hop) -> Any:
        config = self._resolve(hop)
        with _gate(_first_hop(config)):
            return self._log_in(self._shake_hands(config, self._way_to(config, depth=0)), config)

    def key_of(self, hop: Hop) -> HostKey:
        config = self._resolve(hop)
        with _gate(_first_hop(config)):
            return _key_of(self._shake_hands(config, self._way_to(config, depth=0)))

    def _resolve(self, hop: Hop) -> HostConfig:
        return resolve(
            hop.host,
            user=hop.user,
            port=hop.port,
            config=self._settings.ssh_config,
            auth_sock=self._settings.auth_sock,
        )

    def _way_to(self, config: HostConfig, depth: int) -> Any:
        """A socket to the host: straight, by its ProxyCommand, or through its jump hosts."""
        if depth > _MOST_HOPS:
            raise errors.ConfigRefused(
                f"{config}: more than {_MOST_HOPS} jump hosts", fix="look for a loop in ProxyJump"
            )
        if config.jumps:
            return self._way_through([self._resolve(hop) for hop in config.jumps], config, depth)
        if config.proxy_command is not None:
            return ProxySocket(config.proxy_command, self._closer)
        return self._dial(config)

    def _way_through(self, hops: list[HostConfig], last: HostConfig, depth: int) -> Any:
        # Only the first hop's own ProxyJump counts: the list replaces that of the others (ssh -J does the same).
        sock = self._way_to(hops[0], depth + 1)
        for hop, following in zip(hops, [*hops[1:], last], strict=True):
            transport = self._log_in(self._shake_hands(hop, sock), hop)
            sock = self._forward(transport, hop, following)
        return sock

    def _forward(self, transport: Any, hop: HostConfig, to: HostConfig) -> Any:
        try:
            channel = transport.open_channel(
                "direct-tcpip", (to.hostname, to.port), ("127.0.0.1", 0), timeout=self._settings.connect_timeout_s
            )
        except paramiko.ChannelException as error:
            if error.code == 1:
                raise errors.Unreachable(
                    f"the jump host {hop} forbids forwarding", fix="allow AllowTcpForwarding there"
                ) from error
            raise errors.Refused(f"the jump host {hop} cannot connect to {to}: {error.text}") from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._lost(f"the jump host {hop} opened no way to {to}", error) from error
        self._closer.add(channel.close)
        return channel

    def _dial(self, config: HostConfig) -> socket.socket:
        try:
            sock = socket.create_connection((config.hostname, config.port), self._settings.connect_timeout_s)
        except socket.gaierror as error:
            raise errors.Unreachable(
                f"{config}: the name is not known ({error.strerror})", fix="check the name and the ssh configuration"
            ) from error
        except ConnectionRefusedError as error:
            raise errors.Refused(
                f"{config} refuses connections on port {config.port}", fix="is sshd running there, on this port?"
            ) from error
        except OSError as error:
            raise errors.Unreachable(f"{config} does not answer: {error.strerror or error}") from error
        self._closer.add(lambda: _shut(sock))
        _tune(sock)
        return sock

    def _shake_hands(self, config: HostConfig, sock: Any) -> Any:
        """Key exchange, and the host key checked before anything else is sent."""
        limit_s = self._settings.connect_timeout_s
        known = look_up(config, self._settings.known_hosts)
        transport = paramiko.Transport(sock)
        self._closer.add(transport.close)
        sock.settimeout(_CHECK_S)
        transport.banner_timeout = transport.handshake_timeout = limit_s
        transport.auth_timeout = transport.channel_timeout = limit_s
        _prefer(transport, known.types())
        try:
            transport.start_client(timeout=2 * limit_s)
        except paramiko.IncompatiblePeer as error:
            raise errors.HandshakeFailed(
                f"{config} shares no algorithm with this side: {error}", fix="update the OpenSSH server there"
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._lost(f"{config} ended the SSH handshake", error, banner=True, sock=sock) from error
        if not transport.initial_kex_done:
            raise errors.NoBanner(
                f"{config} began the SSH handshake and did not end it", fix="look at sshd's log there"
            )
        self._check_key(config, known, _key_of(transport))
        return transport

    def _check_key(self, config: HostConfig, known: Any, got: HostKey) -> None:
        wrong = check(config, known, got)
        if wrong is None:
            return
        acceptable = isinstance(wrong, errors.HostKeyUnknown | errors.ConfigRefused)
        if not acceptable or got.fingerprint != self._accept:
            raise wrong
        append(self._settings.known_hosts, config.known_as, got)

    def _log_in(self, transport: Any, config: HostConfig) -> Any:
        authenticate(transport, config, self._closer)
        transport.set_keepalive(_KEEPALIVE_S)
        return transport

    def _lost(self, what: str, error: BaseException, *, banner: bool = False, sock: Any = None) -> errors.LinkError:
        if self._closer.why is not None:
            return self._closer.why
        said = f"; its proxy command said: {sock.said}" if isinstance(sock, ProxySocket) and sock.said else ""
        text = f"{what}: {str(error) or 'the connection ended'}{said}"
        if banner:
            return errors.NoBanner(text, fix="does an SSH server listen there? A busy one answers on a later try")
        return errors.Unreachable(text)


def _first_hop(config: HostConfig) -> str:
    if config.jumps:
        return str(config.jumps[0])
    return config.proxy_command or f"{config.hostname}:{config.port}"


def _gate(first_hop: str) -> threading.BoundedSemaphore:
    with _gates_lock:
        return _gates.setdefault(first_hop, threading.BoundedSemaphore(_HANDSHAKES_AT_ONCE))


def _key_of(transport: Any) -> HostKey:
    key = transport.get_remote_server_key()
    return HostKey(key.get_name(), key.asbytes())


def _prefer(transport: Any, types: tuple[str, ...]) -> None:
    """Ask first for keys that we can compare; a server without them shows another, and it is judged."""
    names = {"rsa-sha2-512": "ssh-rsa", "rsa-sha2-256": "ssh-rsa"}
    options = transport.get_security_options()
    options.key_types = sorted(options.key_types, key=lambda name: names.get(name, name) not in types)


def _tune(sock: socket.socket) -> None:
    """See a dead peer in 15 to 20 s, and send at once; each option only where the system has it."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": _USER_TIMEOUT_MS}
    for name, value in wanted.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _shut(sock: socket.socket) -> None:
    # Shutting down wakes paramiko's reader at once; closing alone leaves it until its next check.
    try:
        sock.shutdown(socket.SHUT_RDWR)
    finally:
        sock.close()
