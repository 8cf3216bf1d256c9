"""Every setting with its default. A field is a key: ``[daemon] port`` is ``DaemonSettings.port``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from dflash_supervise.config.secret import Secret


@dataclass(frozen=True)
class DaemonSettings:
    host: str = "127.0.0.1"
    port: int = 8000
    state_dir: str = ""  # empty: $XDG_STATE_HOME/dflash-supervise
    allowed_hosts: tuple[str, ...] = ()  # names a browser may use beside the loopback ones
    public_url: str = ""  # links in messages are made only with this


@dataclass(frozen=True)
class StoreSettings:
    url: str = ""  # empty: SQLite in the state directory
    fine_s: float = 900.0  # observations this young are kept at 1 s, older ones at 10 s
    keep_hours: float = 48.0  # observations older than this go; verdicts, incidents and actions stay


@dataclass(frozen=True)
class SshSettings:
    config_file: str = ""  # passed to ssh -F; empty: the user's own
    connect_timeout_s: float = 15.0


@dataclass(frozen=True)
class StartSettings:
    python: str = ""  # the trainer's Python on the host; empty: searched for
    no_tmux: bool = False


@dataclass(frozen=True)
class SlackSettings:
    webhook: Secret | None = None


@dataclass(frozen=True)
class WebhookSettings:
    url: Secret | None = None
    secret: Secret | None = None  # signs the body with HMAC-SHA256


@dataclass(frozen=True)
class AlertSettings:
    allow_loopback_http: bool = False  # for tests and relays on this machine
    unreachable_hold_s: float = 120.0  # a host is told as unreachable after this
    agent_silent_s: float = 35.0  # no record for this long while the link is ready: the agent is started again
    silent_hold_s: float = 300.0  # and told after this
    reminder_every_s: float = 14400.0  # an open page is repeated this often ...
    reminders: int = 3  # ... at most this many times
    interval_s: float = 1.0  # between two messages to one channel
    retry_max_s: float = 300.0


@dataclass(frozen=True)
class Settings:
    """The effective configuration. ``origins`` says for each dotted key where its value came from."""

    daemon: DaemonSettings = DaemonSettings()
    store: StoreSettings = StoreSettings()
    ssh: SshSettings = SshSettings()
    start: StartSettings = StartSettings()
    slack: SlackSettings = SlackSettings()
    webhook: WebhookSettings = WebhookSettings()
    alerts: AlertSettings = AlertSettings()
    policy: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))  # only what was set
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    files: tuple[str, ...] = ()  # the configuration files that were read

    @property
    def state_dir(self) -> Path:
        return Path(self.daemon.state_dir).expanduser() if self.daemon.state_dir else default_state_dir()

    @property
    def token_file(self) -> Path:
        return self.state_dir / "token"

    @property
    def daemon_file(self) -> Path:
        return self.state_dir / "daemon.json"

    @property
    def lock_file(self) -> Path:
        return self.state_dir / "daemon.lock"

    @property
    def log_file(self) -> Path:
        return self.state_dir / "daemon.log"

    @property
    def known_hosts(self) -> Path:
        return self.state_dir / "known_hosts"

    @property
    def logs_dir(self) -> Path:
        return self.state_dir / "logs"

    @property
    def store_url(self) -> str:
        return self.store.url or f"sqlite:///{self.state_dir / 'store.sqlite3'}"


def default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "dflash-supervise"


def user_config_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "dflash-supervise" / "config.toml"
