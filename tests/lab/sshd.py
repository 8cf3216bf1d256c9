"""A real sshd on loopback, reached through a relay that can lose its network."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.lab.processes import wait_until
from tests.lab.relay import Relay

ALIAS = "gpubox"
START_S = 20.0


class Sshd:
    """One ssh host called `gpubox`: the current user on this machine, with keys and files of its own.

    Start it with `Sshd(folder)`, end it with `close()`. It needs no privilege; as root it serves root.

    Attributes:
        port: the relay's port, to which `gpubox` points; `direct_port` is sshd's own.
        user: who logs in.
        key, ssh_config, known_hosts, log: files under `folder`.
        relay: the network between client and host.
    """

    alias = ALIAS

    def __init__(self, folder: Path, *, env: Mapping[str, str] | None = None, max_sessions: int | None = None) -> None:
        """Args:
        folder: an existing folder that this sshd may fill.
        env: what every session on the host finds in its environment, over sshd's own values.
        max_sessions: sshd's MaxSessions; None is its default of 10.
        """
        self.folder = folder
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.key = folder / "user_key"
        self.host_key = folder / "host_key"
        self.ssh_config = folder / "ssh_config"
        self.known_hosts = folder / "known_hosts"
        self.log = folder / "sshd.log"
        self.direct_port = _free_port()
        self._env = dict(env or {})
        self._max_sessions = max_sessions
        self._timer: threading.Timer | None = None
        for key in (self.key, self.host_key):
            _make_key(key)
        shutil.copy(self.key.with_suffix(".pub"), folder / "authorized_keys")
        self._process = self._start()
        self.relay = Relay(self.direct_port)
        self.port = self.relay.port
        self._write_client_files()

    def env(self) -> dict[str, str]:
        """What lets a client process find `gpubox` by plain `ssh gpubox`.

        OpenSSH takes the home folder from the user database and not from HOME, so a configuration in a
        pretended home is not read; a wrapper called `ssh`, first in PATH, passes `-F` instead.
        """
        return {"PATH": f"{self.folder / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"}

    def run(self, command: str, *, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the host by OpenSSH; the result is not checked."""
        return subprocess.run(
            ["ssh", "-F", str(self.ssh_config), ALIAS, command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def cut(self, seconds: float, *, reset: bool = True) -> None:
        """Lose the network for some seconds, and return at once.

        Args:
            seconds: until it is back.
            reset: existing connections end at once with a reset; without it they fall silent and, unless
                an end gives them up, go on afterwards. New connections hang either way.
        """
        self._stop_timer()
        self.relay.dark()
        if reset:
            self.relay.cut()
        self._timer = threading.Timer(seconds, self.relay.restore)
        self._timer.daemon = True
        self._timer.start()

    def change_host_key(self) -> None:
        """Come back with another host key, as a machine that was replaced does."""
        self._stop_process()
        self.host_key.unlink()
        _make_key(self.host_key)
        self._process = self._start()

    def close(self) -> None:
        self._stop_timer()
        self.relay.close()
        self._stop_process()

    def _start(self) -> subprocess.Popen[bytes]:
        sshd = _sshd_path()
        if os.getuid() == 0:
            # Privilege separation refuses to start without its folder, which only a boot or a unit makes.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self.folder / "sshd_config"
        config.write_text("\n".join(self._server_lines()) + "\n")
        process = subprocess.Popen(
            [sshd, "-D", "-f", str(config), "-E", str(self.log)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ready = wait_until(lambda: process.poll() is not None or self._answers(), START_S)
        if not ready or process.poll() is not None:
            process.kill()
            process.wait()
            raise RuntimeError(f"sshd did not start:\n{self.log.read_text() if self.log.exists() else ''}")
        return process

    def _server_lines(self) -> list[str]:
        lines = [
            "ListenAddress 127.0.0.1",
            f"Port {self.direct_port}",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}",
            f"PidFile {self.folder / 'sshd.pid'}",
            "PubkeyAuthentication yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "UsePAM no",
            "StrictModes no",
            "UseDNS no",
            "PrintMotd no",
            "MaxStartups 200:30:400",
            "LoginGraceTime 60",
            "LogLevel VERBOSE",
            "Subsystem sftp internal-sftp",
        ]
        if self._max_sessions is not None:
            lines.append(f"MaxSessions {self._max_sessions}")
        if self._env:
            # One line: sshd takes the first SetEnv and ignores later ones.
            lines.append("SetEnv " + " ".join(_quoted(f"{name}={value}") for name, value in self._env.items()))
        return lines

    def _write_client_files(self) -> None:
        host_key = self.host_key.with_suffix(".pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {host_key[0]} {host_key[1]}\n")
        lines = [
            f"Host {ALIAS}",
            "  HostName 127.0.0.1",
            f"  Port {self.port}",
            f"  User {self.user}",
            f"  IdentityFile {self.key}",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {self.known_hosts}",
            "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
        ]
        self.ssh_config.write_text("\n".join(lines) + "\n")
        wrapper = self.folder / "bin" / "ssh"
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{self.ssh_config}" "$@"\n')
        wrapper.chmod(0o755)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.direct_port), timeout=2) as sock:
                return sock.recv(4) == b"SSH-"
        except OSError:
            return False

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None

    def _stop_process(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _sshd_path() -> str:
    # sshd insists on an absolute path, and sbin is not in everybody's PATH.
    path = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin")
    if path is None:
        raise RuntimeError("the laboratory needs sshd: run `make system`")
    return path


def _make_key(path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "laboratory", "-f", str(path)],
        stdin=subprocess.DEVNULL,
        check=True,
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def _quoted(text: str) -> str:
    if '"' in text or "\n" in text:
        raise ValueError(f"sshd_config cannot carry this value: {text!r}")
    return f'"{text}"'
