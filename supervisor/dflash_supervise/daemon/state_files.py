"""The small files of a state directory, read by the daemon and the command line: what is in them, or what is wrong."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

_MOST_BYTES = 64 * 1024
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/=-]{16,256}")  # what a bearer header can carry
_OWNER = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ANEW = "remove it: the daemon makes a new one at its next start"


class BadFile(OSError):
    """A file of the state directory that is not what the daemon writes there.

    Attributes:
        what: the file and what is wrong with it.
        fix: what to do about it.
    """

    def __init__(self, path: Path, wrong: str, fix: str = _ANEW) -> None:
        super().__init__(f"{path} {wrong}; {fix}")
        self.what = f"{path} {wrong}"
        self.fix = fix


def token(path: Path) -> str:
    """The daemon's token; empty where there is none.

    Raises:
        BadFile, OSError
    """
    return _line(path, _TOKEN, "holds no token, which is one word of 16 to 256 letters, digits and ._~+/=-", _ANEW)


def owner(path: Path) -> str:
    """This supervisor's id; empty where there is none.

    Raises:
        BadFile, OSError
    """
    fix = f"{_ANEW}, and `adopt TARGET` takes the runs back"
    return _line(path, _OWNER, "holds no id, which is one word of letters, digits and ._-", fix)


def facts(path: Path) -> dict[str, Any]:
    """What the daemon's file says of it.

    Raises:
        BadFile, OSError: FileNotFoundError where there is none.
    """
    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise BadFile(path, "is no JSON") from error
    if not isinstance(found, dict):
        raise BadFile(path, "is no JSON object")
    return found


def _line(path: Path, shape: re.Pattern[bytes], wrong: str, fix: str) -> str:
    try:
        found = _read(path, fix).strip()
    except FileNotFoundError:
        return ""
    if found and not shape.fullmatch(found):
        raise BadFile(path, wrong, fix)
    return found.decode("ascii")


def _read(path: Path, fix: str = _ANEW) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):  # a folder, or a pipe that would be waited for
        raise BadFile(path, "is no file", fix)
    with path.open("rb") as file:
        return file.read(_MOST_BYTES)
