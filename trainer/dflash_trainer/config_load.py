"""TOML and `--set a.b=c` to a typed Config. An unknown key is an error that names the likely one."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dflash_trainer.config import PRESETS, Config
from dflash_trainer.config_check import check
from dflash_trainer.exits import ConfigError

Table = dict[str, object]


def load(file: Path | None, settings: Sequence[str] = (), *, preset: str | None = None) -> Config:
    """Defaults, then the preset, then the file, then each `--set`, in this order.

    Raises:
        ConfigError: names the file (or --set), the key and what to do.
    """
    layers: list[tuple[str, Table]] = []
    if file is not None:
        layers.append((str(file), _read(file)))
    layers.extend(("--set " + text, _setting(text)) for text in settings)
    if preset is not None:
        layers.append(("--preset", {"preset": preset}))
    for source, table in layers:
        _refuse_unknown(Config, table, source, prefix="")
    chosen = next((t["preset"] for _, t in reversed(layers) if "preset" in t), "demo")
    if chosen not in PRESETS:
        raise ConfigError(f"preset: {chosen!r} is none of {', '.join(PRESETS)}")
    values: dict[str, tuple[object, str]] = dict(_flat(PRESETS[str(chosen)], "preset"))
    for source, table in layers:
        values.update(_flat(table, source))
    config = typing.cast(Config, _build(Config, values, prefix=""))
    check(config, {key: source for key, (_, source) in values.items()})
    return config


def flat(config: Config) -> dict[str, object]:
    """`a.b` -> value, for printing, for state.json and for comparing two configurations."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, (value, _) in _flat(dataclasses.asdict(config), "")
    }


def from_flat(values: Mapping[str, object]) -> Config:
    """The way back from `flat`, for settings that were checked before."""
    return typing.cast(Config, _build(Config, {key: (value, "flat") for key, value in values.items()}, prefix=""))


def _read(file: Path) -> Table:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise ConfigError(f"{file}: nested too deeply") from error
    except ValueError as error:  # beside tomllib's own: a number of too many digits
        raise ConfigError(f"{file}: not TOML: {error}") from error


def _setting(text: str) -> Table:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: want key=value, such as --set optim.lr=1e-3")
    try:
        parsed: object = tomllib.loads(f"v = {value}")["v"]
    except (ValueError, RecursionError):
        parsed = value.strip()  # a bare word is a string: --set layout.race_mitigation=none
    table: Table = {}
    inner = table
    *parents, last = key.strip().split(".")
    for part in parents:
        inner = typing.cast(Table, inner.setdefault(part, {}))
    inner[last] = parsed
    return table


def _refuse_unknown(cls: type, table: Mapping[str, object], source: str, *, prefix: str) -> None:
    hints = typing.get_type_hints(cls)
    for key, value in table.items():
        name = f"{prefix}{key}"
        if key not in hints:
            near = difflib.get_close_matches(name, list(_names(Config, "")), n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigError(f"{source}: {name}: unknown key{hint}")
        is_section = dataclasses.is_dataclass(hints[key])
        if is_section != isinstance(value, Mapping):
            want = "a section" if is_section else "a value, not a section"
            raise ConfigError(f"{source}: {name}: want {want}")
        if isinstance(value, Mapping):
            _refuse_unknown(hints[key], value, source, prefix=f"{name}.")


def _names(cls: type, prefix: str) -> Iterator[str]:
    for key, hint in typing.get_type_hints(cls).items():
        yield prefix + key
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            yield from _names(hint, f"{prefix}{key}.")


def _flat(table: Mapping[str, object], source: str, prefix: str = "") -> Iterator[tuple[str, tuple[object, str]]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, source, f"{prefix}{key}.")
        else:
            yield prefix + key, (value, source)


def _build(cls: type, values: Mapping[str, tuple[object, str]], *, prefix: str) -> object:
    chosen: dict[str, object] = {}
    for key, hint in typing.get_type_hints(cls).items():
        name = prefix + key
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            chosen[key] = _build(hint, values, prefix=f"{name}.")
        elif name in values:
            value, source = values[name]
            chosen[key] = _typed(value, hint, f"{source}: {name}")
    return cls(**chosen)


def _typed(value: object, hint: object, where: str) -> object:
    if isinstance(value, int) and value.bit_length() > 63:  # TOML knows no larger one, and Python shows not every one
        raise ConfigError(f"{where}: want {_type_name(hint)}, got one of {value.bit_length()} bits")
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str):
        return value
    if typing.get_origin(hint) is tuple and isinstance(value, list | tuple):
        item = typing.get_args(hint)[0]
        return tuple(_typed(each, item, where) for each in value)
    raise ConfigError(f"{where}: want {_type_name(hint)}, got {value!r}")


def _type_name(hint: object) -> str:
    if typing.get_origin(hint) is tuple:
        return f"a list of {typing.get_args(hint)[0].__name__}"
    return {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}[
        typing.cast(type, hint).__name__
    ]
