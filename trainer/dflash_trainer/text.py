"""Text to bytes: the documentation that ships inside every CPython, or a file of the user's."""

from __future__ import annotations

import importlib
from pathlib import Path

import torch
from torch import Tensor

from dflash_trainer.config import DataConfig
from dflash_trainer.exits import DataError


def load_bytes(config: DataConfig, *, least: int) -> tuple[Tensor, Tensor]:
    """Training and held-out parts as int64 byte ids [n]; the held-out part is the end of the text.

    Raises:
        DataError: the text is missing, not UTF-8, or one part is shorter than `least` bytes.
    """
    raw = _pydoc_topics() if config.text == "pydoc" else _file(Path(config.text))
    tokens = torch.tensor(bytearray(raw), dtype=torch.int64)
    cut = len(tokens) - int(len(tokens) * config.held_out_frac)
    train, held_out = tokens[:cut], tokens[cut:]
    for name, part in (("training", train), ("held-out", held_out)):
        if len(part) < least:
            raise DataError(f"data.text={config.text}: the {name} part has {len(part)} bytes, {least} are needed")
    return train, held_out


def _pydoc_topics() -> bytes:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise DataError("data.text=pydoc: this Python has no pydoc_data; name a text file in data.text") from error
    return "\n".join(topics[name] for name in sorted(topics)).encode()


def _file(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        raw.decode("utf-8")
    except FileNotFoundError as error:
        raise DataError(f"data.text={path}: no such file") from error
    except UnicodeDecodeError as error:
        raise DataError(f"data.text={path}: not UTF-8 at byte {error.start}") from error
    return raw
