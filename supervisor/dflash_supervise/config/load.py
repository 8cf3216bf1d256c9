"""Reads the layers (user file, ./dflash.toml, environment, flags) and keeps the origin of each value."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from dflash_supervise.config import convert, toml_text
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
from dflash_supervise.core.policy import MOST_S, Policy, out_of_range

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

_Rows = Iterator[tuple[str, object, str] | ConfigError]  # dotted key, value as written, where it was written


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
    merged, wrong = _read(paths, environ, flags or {})
    if wrong:
        raise wrong[0]
    values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for key, (value, _where) in merged.items():
        section, name = key.split(".", 1)
        values[section][name] = value
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


def problems(
    *, files: tuple[Path, ...] | None = None, environ: Mapping[str, str] | None = None
) -> tuple[ConfigError, ...]:
    """Everything that is wrong with these files and variables; ``load`` raises the first of it."""
    environ = os.environ if environ is None else environ
    return tuple(_read(_usual_files(environ) if files is None else files, environ, {})[1])


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


def _read(
    paths: tuple[Path, ...], environ: Mapping[str, str], flags: Mapping[str, object]
) -> tuple[dict[str, tuple[object, str]], list[ConfigError]]:
    """Dotted key to the value that holds and where it was written; and everything that is wrong.

    Also with what a later layer hides: a file that is checked shall be right by itself.
    """
    merged: dict[str, tuple[object, str]] = {}
    wrong: list[ConfigError] = []
    for row in chain(*map(_file_rows, paths), _environment_rows(environ), _flag_rows(flags)):
        if isinstance(row, ConfigError):
            wrong.append(row)
            continue
        key, raw, where = row
        try:
            merged[key] = (_value(key, raw, where), where)
        except ConfigError as error:
            wrong.append(error)
    return merged, wrong


def _file_rows(path: Path) -> _Rows:
    try:
        document = _document(path)
    except ConfigError as error:
        yield error
        return
    for section, body in document.items():
        if section not in SECTIONS:
            yield convert.unknown(section, tuple(SECTIONS), what="section", where=str(path))
        elif not isinstance(body, dict):
            yield ConfigError(
                "must be a table", where=str(path), key=section, fix=f"write [{section}] on a line of its own"
            )
        else:
            yield from ((f"{section}.{name}", raw, str(path)) for name, raw in body.items())


def _document(path: Path) -> dict[str, object]:
    try:
        return toml_text.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
        raise ConfigError(text, where=str(path), fix="check the path and its mode") from error
    except UnicodeDecodeError as error:
        raise ConfigError("is no UTF-8 text", where=str(path), fix="save it as UTF-8") from error
    except ValueError as error:
        raise ConfigError(str(error), where=str(path), fix="mend this place, then check again") from error


def _environment_rows(environ: Mapping[str, str]) -> _Rows:
    for variable, text in environ.items():
        rest = variable.removeprefix(ENV_PREFIX)
        if rest == variable or rest in ENV_NOT_SETTINGS:
            continue
        where = f"environment {variable}"
        section, _, name = ENV_SHORT.get(rest, rest.lower().replace("_", ".", 1)).partition(".")
        if section not in SECTIONS:
            yield convert.unknown(section, tuple(SECTIONS), what="section", where=where)
            continue
        key = f"{section}.{name}"
        try:
            yield key, convert.from_text(text, _kind(key, where), key=key, where=where), where
        except ConfigError as error:
            yield error


def _flag_rows(flags: Mapping[str, object]) -> _Rows:
    for key, raw in flags.items():
        section, _, name = key.partition(".")
        assert section in SECTIONS, key
        if raw is not None:
            yield key, raw, f"flag --{name.replace('_', '-')}"


def _value(key: str, raw: object, where: str) -> object:
    """The value as its field wants it.

    Raises:
        ConfigError: an unknown key, another type, or a value that cannot be.
    """
    section, name = key.split(".", 1)
    value = convert.value(raw, _kind(key, where), key=key, where=where)
    if key == "daemon.port" and isinstance(value, int) and not 0 <= value <= 65535:
        raise ConfigError(f"is {value}", where=where, key=key, fix="use 1 to 65535, or 0 for any free port")
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
    if section in ("store", "ssh", "alerts") and not 0 <= number <= MOST_S:  # nor what is no number
        fix = "it cannot be negative" if number < 0 else f"use a number from 0 to {MOST_S:.0f}"
        raise ConfigError(f"is {convert.shown(value)}", where=where, key=key, fix=fix)
    if section == "policy":
        wrong = out_of_range(name, value)
        if wrong is not None:
            raise ConfigError(f"is {convert.shown(value)}", where=where, key=key, fix=wrong)
        try:
            Policy(**{name: value})  # type: ignore[arg-type]  # converted by the field's own type
        except ValueError as error:
            # The key is named already.
            raise ConfigError(str(error).removeprefix(f"{key} "), where=where, key=key) from error
    return value


def _kind(key: str, where: str) -> str:
    section, name = key.split(".", 1)
    known = convert.kinds(SECTIONS[section])
    if name not in known:
        raise convert.unknown(name, tuple(known), what="key", where=where, section=section)
    return known[name]
