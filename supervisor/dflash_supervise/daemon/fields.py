"""The values of a request's body: each is taken as what it must be, or refused with the name of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dflash_supervise.config import convert
from dflash_supervise.web.control import Refused

Doc = dict[str, Any]

_MOST_DEPTH = 32


def bad(key: str, what: str) -> Refused:
    return refused("bad_request", f"{key} {what}")


def refused(code: str, message: str) -> Refused:
    """A refusal that can be sent: what it quotes may hold halves of characters."""
    return Refused(code, message.encode("utf-8", "backslashreplace").decode(), exit_code=2, http_status=400)


def only(request: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse a key that nobody knows: it is a mistyped one."""
    for key in request:
        if key not in known:
            error = convert.unknown(key, tuple(sorted(known)), what="key", where="request")
            raise refused("bad_request", error.message)


def text(request: Mapping[str, Any], key: str) -> str | None:
    value = request.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise bad(key, "must be a string")
    if not value or not _is_word(value, "strict"):
        raise bad(key, "must be text without a NUL byte, and not empty")
    return value


def words(request: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of words for a command line; bytes that are no UTF-8 stay what they were."""
    value = request.get(key)
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise bad(key, "must be a list of strings")
    if not all(_is_word(item, "surrogateescape") for item in value):
        raise bad(key, "holds a NUL byte or half a character")
    return tuple(value)


def flag(request: Mapping[str, Any], key: str) -> bool:
    value = request.get(key)
    if value is not None and not isinstance(value, bool):
        raise bad(key, "must be true or false")
    return bool(value)


def whole(request: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    value = request.get(key)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise bad(key, f"must be a whole number from {least} to {most}")
    return value


def table(request: Mapping[str, Any], key: str) -> Doc | None:
    """An object; of a depth that everybody on its way can read."""
    value = request.get(key)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise bad(key, "must be an object")
    if not _is_flat(value, _MOST_DEPTH):
        raise bad(key, "is nested too deeply")
    return value


def environment(request: Mapping[str, Any], key: str) -> dict[str, str]:
    value = request.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in (*value, *value.values())):
        raise bad(key, "must map names to text")
    for name, item in value.items():
        # The value may be a secret: only the name is repeated.
        if not name or "=" in name or not _is_word(name, "surrogateescape"):
            raise bad(key, f"has a variable of the name {name!r}")
        if not _is_word(item, "surrogateescape"):
            raise bad(key, f"{name}: holds a NUL byte or half a character")
    return dict(value)


def gpus(request: Mapping[str, Any], key: str) -> str | tuple[str, ...]:
    value = request.get(key)
    if value is None:
        return "all"
    if value in ("all", "none"):
        return str(value)
    named = isinstance(value, list | tuple) and all(type(item) in (str, int) for item in value)
    if not named or not value or not all(_is_word(str(item), "strict") for item in value):
        raise bad(key, 'must be "all", "none" or a list of indices or UUIDs')
    return tuple(str(item) for item in value)


def _is_flat(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_flat(item, levels - 1) for item in inner)


def _is_word(value: str, errors: str) -> bool:
    """Whether an operating system takes it as an argument."""
    try:
        return b"\0" not in value.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
