"""File habits of the agent: folders that only we can use, and files that are whole or the old ones."""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, Dict, Optional, Tuple

COMPLETE = ".complete"  # written last into an unpacked folder: without it the folder is no more than a try


class UnsafeFolder(Exception):
    """A folder that others could have prepared or can write to; nothing in it may be believed."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path
        self.why = why
        self.fix = f"chmod go-w {path}; if it is not yours, move it away: mv {path} {path}.old"


def check_folder(path: str, *, private: bool) -> None:
    """Refuse a folder that is a link, is not ours, or that others may write (``private``: or read).

    Raises:
        UnsafeFolder: it may not be used.
        OSError: it cannot be looked at.
    """
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFolder(path, "is not a folder but a link or a file")
    if found.st_uid != os.geteuid():
        raise UnsafeFolder(path, f"belongs to uid {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & (0o077 if private else 0o022):
        raise UnsafeFolder(path, f"has mode {stat.S_IMODE(found.st_mode):04o}: others can use it")


def make_folder(path: str) -> None:
    """Create a 0700 folder, or check the one that is there.

    Raises:
        UnsafeFolder, OSError
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    check_folder(path, private=True)


def write_atomic(path: str, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Write beside, fsync, rename, fsync the folder: a reader sees the old file or the new one, also after power loss.

    Raises:
        OSError
    """
    beside = f"{path}.{os.getpid()}.tmp"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.rename(beside, path)
    except BaseException:
        try:
            os.unlink(beside)
        except OSError:
            pass  # the first error is the one to tell
        raise
    if durable:
        sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(fd)


def write_json(path: str, value: Any, *, mode: int = 0o600, durable: bool = True) -> None:
    write_atomic(path, (json.dumps(value, separators=(",", ":")) + "\n").encode("utf-8"), mode=mode, durable=durable)


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """A JSON object, or None when the file is absent, unreadable or holds something else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            value = decode_json(file.read())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def decode_json(data: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is none, or is nested deeper than anything of ours.
    """
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def attempt_numbers(run_dir: str) -> Tuple[int, ...]:
    """The attempts that were ever claimed, in order. A folder that is named otherwise than we do is none of ours.

    Raises:
        OSError: the folder of the attempts is there and cannot be read.
    """
    try:
        names = os.listdir(os.path.join(run_dir, "attempts"))
    except FileNotFoundError:
        return ()
    return tuple(sorted(int(name) for name in names if _is_number(name)))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and name[0] != "0" and len(name) < 10
