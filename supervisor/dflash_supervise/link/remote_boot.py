"""Puts the agent on a host and becomes it. Sent as text by `boot` and run there; never imported here.

Python 3.8, standard library, one file.
"""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from typing import Any, NoReturn

# Unbuffered: what follows in the stream belongs to the agent that replaces this process.
_INPUT = io.FileIO(0, closefd=False)


def main() -> None:
    config = json.loads(_INPUT.readline())
    umask = os.umask(0o077)
    name = config["hash"]
    bases, notes = _bases(config["workspace"])
    base = next((b for b in bases if _complete(os.path.join(b, "agent", name))), None)
    if base is None:
        _say({"boot": "need", "python": _version(), "executable": _executable(), "notes": notes})
        base = _install_somewhere(bases, name, _receive(config), notes)
    folder = os.path.join(base, "agent", name)
    _say({"boot": "have", "python": _version(), "executable": _executable(), "folder": folder, "notes": notes})
    os.umask(umask)
    environment = dict(os.environ)
    environment.update(config["environment"])
    os.execve(_executable(), [_executable(), "-IS", folder] + config["arguments"], environment)


def _bases(workspace: str) -> tuple[list[str], list[str]]:
    """The folders that may hold an agent, the workspace's first, and why one was left out."""
    bases: list[str] = []
    notes: list[str] = []
    if not os.path.isdir(workspace):
        notes.append(f"{workspace} is not a folder")
    else:
        _take(os.path.join(workspace, ".dflash"), bases, notes)
    _take(_runtime_folder(), bases, notes)
    return bases, notes


def _take(base: str, bases: list[str], notes: list[str]) -> None:
    """Keep a base whose agent folder is ours alone: what lies there is executed."""
    for folder in (base, os.path.join(base, "agent")):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            # Another boot may have made it; the look below decides.
            pass
        except OSError as error:
            notes.append(f"{folder}: {error.strerror}")
            return
        if not _ours(folder, 0o022):
            notes.append(f"{folder} is not a folder of ours alone")
            return
    bases.append(base)


def _runtime_folder() -> str:
    """The same choice as the agent's `runtime_root`."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(base):
        return os.path.join(base, "dflash")
    session = f"/run/user/{os.geteuid()}"
    if _ours(session, 0o077):
        return os.path.join(session, "dflash")
    return f"/tmp/dflash-{os.geteuid()}"


def _ours(folder: str, forbidden: int) -> bool:
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & forbidden


def _complete(folder: str) -> bool:
    try:
        return _ours(folder, 0o022) and stat.S_ISREG(os.lstat(os.path.join(folder, ".complete")).st_mode)
    except OSError:
        return False


def _receive(config: dict[str, Any]) -> bytes:
    import hashlib
    import zlib

    chunks, left = [], config["size"]
    while left:
        chunk = _INPUT.read(min(left, 65536))
        if not chunk:
            sys.exit(1)  # the other side is gone
        chunks.append(chunk)
        left -= len(chunk)
    data = zlib.decompress(b"".join(chunks))
    if hashlib.sha256(data).hexdigest() != config["hash"]:
        _fail("push_damaged", "the agent arrived damaged")
    return data


def _install_somewhere(bases: list[str], name: str, data: bytes, notes: list[str]) -> str:
    for base in bases:
        try:
            _install(os.path.join(base, "agent"), name, data)
            return base
        except OSError as error:
            notes.append(f"{base}: {error.strerror or error}")
    _fail("workspace_not_writable", "no place for the agent: " + "; ".join(notes))


def _install(parent: str, name: str, data: bytes) -> None:
    """Unpack beside and rename: a folder of this name is whole or absent."""
    import shutil
    import zipfile

    beside = os.path.join(parent, f".{name[:16]}.{os.getpid()}")
    target = os.path.join(parent, name)
    try:
        os.mkdir(beside, 0o700)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                path = os.path.join(beside, member.filename)
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                _write(path, archive.read(member))
        _write(os.path.join(beside, ".complete"), b"")
        if os.path.lexists(target) and not _complete(target):
            os.rename(target, beside + ".old")
        if not _complete(target):
            _rename(beside, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        shutil.rmtree(beside + ".old", ignore_errors=True)


def _rename(beside: str, target: str) -> None:
    try:
        os.rename(beside, target)
    except OSError:
        # Two boots at once: the other's folder holds the same content.
        if not _complete(target):
            raise


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _executable() -> str:
    # What a shim started is named here, not the shim: later starts skip it.
    return sys.executable or os.path.realpath("/proc/self/exe")


def _version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _say(message: dict[str, Any]) -> None:
    os.write(1, b"\x1e" + json.dumps(message).encode() + b"\n")


def _fail(code: str, message: str) -> NoReturn:
    _say({"boot": "failed", "code": code, "message": message})
    sys.exit(1)


main()
