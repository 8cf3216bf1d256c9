"""TOML, environment and flags to typed settings. Errors name file and key, and guess what was meant."""

from __future__ import annotations

from dflash_supervise.config.load import load, problems, settings_rows
from dflash_supervise.config.problem import ConfigError
from dflash_supervise.config.schema import (
    AlertSettings,
    DaemonSettings,
    Settings,
    SlackSettings,
    SshSettings,
    StartSettings,
    StoreSettings,
    WebhookSettings,
)
from dflash_supervise.config.secret import Secret

__all__ = [
    "AlertSettings",
    "ConfigError",
    "DaemonSettings",
    "Secret",
    "Settings",
    "SlackSettings",
    "SshSettings",
    "StartSettings",
    "StoreSettings",
    "WebhookSettings",
    "load",
    "problems",
    "settings_rows",
]
