"""Reads the layers (user file, ./dflash.toml, environment, flags) and keeps the origin of each value."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType

from dflash_supervise.config import convert
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
    user_config_file,
)
from dflash_supervise.core.policy import Policy

ENV_PREFIX = "DFLASH_SUPERVISE_"
ENV_SHORT = {"STATE_DIR": "daemon.state_dir", "SSH_CONFIG": "ssh.config_file"}
# Read by others before there are settings, or meant for a child of ours.
ENV_NOT_SETTINGS = frozenset({"CONFIG", "FILES", "COMPLETE", "TOKEN"})

SECTIONS: dict[str, type] = {
    "daemon": DaemonSettings,
    "store": StoreSettings,
    "ssh": SshSettings,
    "start": StartSettings,
    "slack": SlackSettings,
    "webhook": WebhookSettings,
    "alerts": AlertSettings,
    "policy": Policy,
}

_Layer = dict[str, tuple[object, str]]  # dotted key -> (value, where it was written)


def load(
    *,
    files: tuple[Path, ...] | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """The effective settings.

    Args:
        files: read instead of the two usual places; each must exist.
        environ: instead of the process's own.
        flags: dotted key to value; None means the flag was not given.

    Raises:
        ConfigError: an unreadable file, an unknown key or a wrong value.
    """
    environ = os.environ if environ is None else environ
    paths = _usual_files(environ) if files is None else files
    merged: _Layer = {}
    for layer in (*map(_file_layer, paths), _environment_layer(environ), _flag_layer(flags or {})):
        # Also what a later layer hides: a file that is checked shall be right by itself.
        merged.update({key: (_value(key, raw, where), where) for key, (raw, where) in layer.items()})
    values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for key, (value, _where) in merged.items():
        section, name = key.split(".", 1)
        values[section][name] = value
    _check_policy(values["policy"], merged)
    _check_ranges(values, merged)
    return Settings(
        daemon=DaemonSettings(**values["daemon"]),  # type: ignore[arg-type]  # converted by the field's own type
        store=StoreSettings(**values["store"]),  # type: ignore[arg-type]  # likewise
        ssh=SshSettings(**values["ssh"]),  # type: ignore[arg-type]  # likewise
        start=StartSettings(**values["start"]),  # type: ignore[arg-type]  # likewise
        slack=SlackSettings(**values["slack"]),  # type: ignore[arg-type]  # likewise
        webhook=WebhookSettings(**values["webhook"]),  # type: ignore[arg-type]  # likewise
        alerts=AlertSettings(**values["alerts"]),  # type: ignore[arg-type]  # likewise
        policy=MappingProxyType(values["policy"]),
        origins=MappingProxyType({key: where for key, (_raw, where) in merged.items()}),
        files=tuple(str(path) for path in paths),
    )


def settings_rows(settings: Settings) -> list[tuple[str, str, str]]:
    """Every key as (dotted key, shown value, origin) for ``config show``; secrets show their source only."""
    rows = []
    for section, kind in SECTIONS.items():
        holder = settings.policy if section == "policy" else getattr(settings, section)
        for item in fields(kind):
            key = f"{section}.{item.name}"
            if isinstance(holder, Mapping):
                shown = holder.get(item.name, "by kind of run" if item.name == "preset" else item.default)
            else:
                shown = getattr(holder, item.name)
            rows.append((key, convert.shown(shown), settings.origins.get(key, "default")))
    return rows


def _usual_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    handed_on = environ.get(ENV_PREFIX + "FILES")
    if handed_on is not None:  # a daemon reads what its starter read, wherever that was
        return tuple(Path(name) for name in handed_on.split(os.pathsep) if name)
    chosen = environ.get(ENV_PREFIX + "CONFIG")
    first = Path(chosen).expanduser() if chosen else user_config_file()
    found = [first] if chosen or first.exists() else []
    here = Path("dflash.toml")
    if here.exists():
        found.append(here.resolve())
    return tuple(found)


def _file_layer(path: Path) -> _Layer:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
        raise ConfigError(text, where=str(path), fix="check the path and its mode") from error
    except UnicodeDecodeError as error:
        raise ConfigError("is no UTF-8 text", where=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"is not TOML: {error}", where=str(path)) from error
    layer: _Layer = {}
    for section, body in document.items():
        if section not in SECTIONS:
            raise convert.unknown(section, tuple(SECTIONS), what="section", where=str(path))
        if not isinstance(body, dict):
            raise ConfigError(
                "must be a table", where=str(path), key=section, fix=f"write [{section}] on a line of its own"
            )
        for name, raw in body.items():
            _known(section, name, str(path))
            layer[f"{section}.{name}"] = (raw, str(path))
    return layer


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
    layer: _Layer = {}
    for variable, text in environ.items():
        if not variable.startswith(ENV_PREFIX):
            continue
        rest = variable[len(ENV_PREFIX) :]
        if rest in ENV_NOT_SETTINGS:
            continue
        section, _, name = ENV_SHORT.get(rest, rest.lower().replace("_", ".", 1)).partition(".")
        if section not in SECTIONS:
            raise convert.unknown(section, tuple(SECTIONS), what="section", where=f"environment {variable}")
        _known(section, name, f"environment {variable}")
        kind = convert.kinds(SECTIONS[section])[name]
        layer[f"{section}.{name}"] = (
            convert.from_text(text, kind, key=f"{section}.{name}", where=variable),
            f"environment {variable}",
        )
    return layer


def _flag_layer(flags: Mapping[str, object]) -> _Layer:
    layer: _Layer = {}
    for key, raw in flags.items():
        if raw is None:
            continue
        section, _, name = key.partition(".")
        assert section in SECTIONS, key
        _known(section, name, "flag")
        layer[key] = (raw, f"flag --{name.replace('_', '-')}")
    return layer


def _value(key: str, raw: object, where: str) -> object:
    section, name = key.split(".", 1)
    return convert.value(raw, convert.kinds(SECTIONS[section])[name], key=key, where=where)


def _known(section: str, name: str, where: str) -> None:
    names = tuple(item.name for item in fields(SECTIONS[section]))
    if name not in names:
        raise convert.unknown(name, names, what="key", where=where, section=section)


def _check_policy(given: Mapping[str, object], merged: _Layer) -> None:
    try:
        Policy(**given)  # type: ignore[arg-type]  # converted by the field's own type
    except ValueError as error:
        where = merged.get("policy.preset", (None, "configuration"))[1]
        text = str(error).removeprefix("policy.preset ")  # the key is named already
        raise ConfigError(text, where=where, key="policy.preset") from error


def _check_ranges(values: Mapping[str, Mapping[str, object]], merged: _Layer) -> None:
    port = values["daemon"].get("port", 1)
    if isinstance(port, int) and not 0 <= port <= 65535:
        raise ConfigError(
            f"is {port}",
            where=merged["daemon.port"][1],
            key="daemon.port",
            fix="use 1 to 65535, or 0 for any free port",
        )
    for section in ("store", "ssh", "alerts", "policy"):
        for name, number in values[section].items():
            if isinstance(number, int | float) and not isinstance(number, bool) and number < 0:
                key = f"{section}.{name}"
                raise ConfigError(f"is {number}", where=merged[key][1], key=key, fix="it cannot be negative")
