"""One value to the type of its field, and suggestions for names that do not exist."""

from __future__ import annotations

import difflib
import json
from dataclasses import fields
from functools import cache
from typing import get_type_hints

from dflash_supervise.config import secret
from dflash_supervise.config.problem import ConfigError

_KINDS = {
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "tuple": "strings",
    "Tuple": "strings",
}
_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "strings": "a list of strings",
}


@cache
def kinds(section: type) -> dict[str, str]:
    """Field name to one of str, int, float, bool, strings, secret."""
    hints = get_type_hints(section)
    return {item.name: _kind(hints[item.name]) for item in fields(section)}


def value(raw: object, kind: str, *, key: str, where: str) -> object:
    """``raw`` (from TOML, a flag or ``from_text``) as its field wants it.

    Raises:
        ConfigError: another type.
    """
    if kind == "secret":
        return secret.parse(raw, key=key, where=where)
    if kind == "float" and isinstance(raw, int) and not isinstance(raw, bool):
        try:
            return float(raw)
        except OverflowError as error:
            raise ConfigError("is too large a number", where=where, key=key) from error
    if kind == "strings":
        if isinstance(raw, list | tuple) and all(isinstance(item, str) for item in raw):
            return tuple(raw)
    elif type(raw).__name__ == kind:
        return raw
    raise ConfigError(f"is {shown(raw)}; it must be {_WORDS[kind]}", where=where, key=key)


def from_text(text: str, kind: str, *, key: str, where: str) -> object:
    """An environment variable's text as a raw value: JSON for a secret's table, commas for a list.

    Raises:
        ConfigError: it cannot be read so.
    """
    if kind == "secret" and text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            # What could not be read may be the secret: no word of it is repeated.
            raise ConfigError('is not JSON; write {"file": "path"}', where=where, key=key) from None
    if kind == "strings":
        return [item.strip() for item in text.split(",") if item.strip()]
    if kind == "bool" and text.lower() in ("1", "true", "yes", "0", "false", "no"):
        return text.lower() in ("1", "true", "yes")
    try:
        return {"int": int, "float": float}.get(kind, str)(text)
    except ValueError as error:
        raise ConfigError(f"is {text!r}; it must be {_WORDS[kind]}", where=where, key=key) from error


def shown(item: object) -> str:
    if isinstance(item, secret.Secret):
        return item.describe()
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, list | tuple):
        return json.dumps(list(item))
    return json.dumps(item) if isinstance(item, str) else str(item)


def unknown(name: str, known: tuple[str, ...], *, what: str, where: str, section: str = "") -> ConfigError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    fix = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return ConfigError(f"unknown {what}", where=where, key=f"{section}.{name}" if section else name, fix=fix)


def _kind(hint: object) -> str:
    text = getattr(hint, "__name__", None) or str(hint)
    if "Secret" in str(hint):
        return "secret"
    assert text in _KINDS, hint
    return _KINDS[text]
