"""Writing that survives a crash: beside, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable; renames are not until then."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: Path, value: Mapping[str, object], *, durable: bool) -> None:
    """Replace `path` in one step, so that a reader sees the old text or the new one, never half.

    With `durable` the text and its name are on the disk when this returns. Progress is not durable:
    losing one second of it in a power cut costs nothing, an fsync a step would.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as out:
            json.dump(value, out, allow_nan=False)
            out.write("\n")
            if durable:
                out.flush()
                os.fsync(out.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace `path` durably with `text`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(beside, path)
    sync_folder(path.parent)
