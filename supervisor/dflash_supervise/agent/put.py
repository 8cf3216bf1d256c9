"""Receive the bundled trainer in pieces, check it by its hash, and unpack it beside before it gets its name."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import zipfile
from typing import Any, Dict

from dflash_supervise.agent.files import COMPLETE, make_folder, sync_folder

KINDS = ("trainer",)
MAX_BYTES = 256 << 20
_HASH = re.compile(r"^[0-9a-f]{16,64}$")


def target(workspace: str, kind: str, digest: str) -> str:
    """The folder that will hold it: ``<workspace>/.dflash/<kind>/<hash>``.

    Raises:
        ValueError: an unknown kind, or a hash that is none.
    """
    if kind not in KINDS:
        raise ValueError("kind: {!r} is not one of {}".format(kind, ", ".join(KINDS)))
    if not _HASH.match(digest):
        raise ValueError(f"hash: {digest!r} is no sha256 in hex")
    return os.path.join(workspace, ".dflash", kind, digest)


def have(workspace: str, kind: str, digest: str) -> bool:
    """Whether it is there, complete."""
    return os.path.isfile(os.path.join(target(workspace, kind, digest), COMPLETE))


def put(workspace: str, kind: str, digest: str, offset: int, data: bytes, last: bool) -> Dict[str, Any]:
    """Take one piece of the archive at ``offset``; with ``last`` check and unpack it.

    Raises:
        ValueError: the bytes do not have this hash, or a piece is missing before ``offset``.
        OSError: the workspace does not take it.
    """
    place = target(workspace, kind, digest)
    if have(workspace, kind, digest):
        return {"have": True, "size": offset + len(data)}
    base = os.path.join(workspace, ".dflash")
    for folder in (base, os.path.dirname(place)):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        if not os.path.isdir(folder):
            make_folder(folder)
    part = os.path.join(os.path.dirname(place), "." + digest + ".part")
    size = _append(part, offset, data)
    if last:
        _unpack(part, place, digest)
        os.unlink(part)
    return {"have": last, "size": size}


def _append(part: str, offset: int, data: bytes) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(part, flags | (os.O_TRUNC if offset == 0 else 0), 0o600)
    try:
        size = os.fstat(fd).st_size
        if offset > size:
            raise ValueError(f"bytes {size} to {offset} are missing")
        if offset + len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        os.pwrite(fd, data, offset)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def _unpack(part: str, place: str, digest: str) -> None:
    with open(part, "rb") as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != digest:
        os.unlink(part)
        raise ValueError("the archive arrived damaged: its sha256 is another one")
    beside = f"{place}.{os.getpid()}.new"
    shutil.rmtree(beside, ignore_errors=True)
    os.mkdir(beside, 0o700)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            name = os.path.normpath(member.filename)
            if os.path.isabs(name) or name.startswith(".."):
                raise ValueError(f"the archive holds {member.filename!r}, outside its folder")
        archive.extractall(beside)
    with open(os.path.join(beside, COMPLETE), "wb") as file:
        os.fsync(file.fileno())
    if os.path.isdir(place):  # an earlier one that was never completed
        shutil.rmtree(place)
    os.rename(beside, place)
    sync_folder(os.path.dirname(place))
