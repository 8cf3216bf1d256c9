"""Frozen dataclasses <-> JSON: what the agent writes, the daemon stores, and ``replay`` reads back.

Fields equal to their default are left out, so a record stays small; a field that an older or newer side does not know
is ignored on reading. A union of dataclasses is told apart by the key ``type``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from enum import Enum
from typing import Any, Dict, Type, TypeVar, Union

SCHEMA = 1
MAX_LINE_BYTES = 256 * 1024
MAX_NUMBER = 2**64  # no count, size, time or bit mask of ours is larger
# The kinds of record that tell what was decided and done; observations and heartbeats are readings.
STORY_KINDS = (
    "agent_start",
    "spec",
    "attempt_start",
    "verdict",
    "incident",
    "action",
    "outcome",
    "attempt_end",
    "note",
)

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """A value of our dataclasses as plain JSON data (dict, list, str, number, None)."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out: Dict[str, Any] = {}
        if type(value).__name__ in _TAGGED:
            out["type"] = type(value).__name__
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if field.default is not dataclasses.MISSING and item == field.default:
                continue
            out[field.name] = to_json(item)
        return out
    if isinstance(value, (tuple, list, frozenset, set)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN; a loss that is none is told by its note
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


def from_json(cls: Type[T], data: Any) -> T:
    """The inverse of ``to_json`` for a frozen dataclass of ours.

    Raises:
        ValueError: a required field is absent or a value has the wrong shape; the text names class and field.
    """
    result: T = _read_dataclass(cls, data)
    return result


# Dataclasses that stand in a union with another dataclass carry their name.
_TAGGED = frozenset({"Missing", "Stop", "Continue", "EndStale", "Launch", "SampleStacks"})


@functools.lru_cache(maxsize=None)
def _hints(cls: Type[Any]) -> Dict[str, Any]:
    return typing.get_type_hints(cls)


def _read_dataclass(cls: Any, data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{cls.__name__}: expected an object, got {type(data).__name__}")
    hints, values = _hints(cls), {}
    for field in dataclasses.fields(cls):
        if field.name in data:
            values[field.name] = _read(hints[field.name], data[field.name], cls.__name__ + "." + field.name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{cls.__name__}: the field {field.name} is absent")
    return cls(**values)


def _read(hint: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin is Union:
        return _read_union(typing.get_args(hint), data, where)
    if origin is tuple:
        args = typing.get_args(hint)
        if not isinstance(data, list):
            raise ValueError(f"{where}: expected a list")
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_read(args[0], item, where) for item in data)
        if len(args) != len(data):
            raise ValueError(f"{where}: expected {len(args)} items, got {len(data)}")
        return tuple(_read(arg, item, where) for arg, item in zip(args, data))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    if dataclasses.is_dataclass(hint):
        return _read_dataclass(hint, data)
    if isinstance(data, (int, float)) and not abs(data) <= MAX_NUMBER:  # nan is not
        raise ValueError(f"{where}: {data!r:.40} is no number of ours")
    if hint is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        return float(data)
    if isinstance(hint, type) and not isinstance(data, hint):
        raise ValueError(f"{where}: expected {hint.__name__}, got {data!r:.80}")
    return data


def _read_union(options: Any, data: Any, where: str) -> Any:
    if data is None and type(None) in options:
        return None
    classes: Any = [option for option in options if dataclasses.is_dataclass(option)]
    if classes and isinstance(data, dict):
        tag = data.get("type")
        for option in classes:
            if option.__name__ == tag:
                return _read_dataclass(option, data)
        untagged = [option for option in classes if option.__name__ not in _TAGGED]
        if len(untagged) == 1:
            return _read_dataclass(untagged[0], data)
        raise ValueError(f"{where}: no class for type {tag!r}")
    for option in options:
        if option is type(None) or dataclasses.is_dataclass(option):
            continue
        try:
            return _read(option, data, where)
        except ValueError:
            continue
    raise ValueError(f"{where}: {data!r:.80} fits none of its types")
