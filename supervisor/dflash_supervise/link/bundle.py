"""What travels to a host: the agent and the bundled trainer, as archives named by their content."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_MAIN = b"""import sys

from dflash_supervise.agent.main import main

sys.exit(main())
"""
_AGENT_PARTS = ("core", "agent")
_AGENT_FILES = ("__init__.py", "wire.py")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip archive can hold


@dataclass(frozen=True, slots=True)
class Bundle:
    """An archive and its name.

    hash: sha256 of `data` in hex; folder name on the host, checked there after the transfer.
    data: a zip archive whose members are stored and not deflated, so that the bytes depend on the sources
        alone and not on the zlib of the machine that packed them (the transfer compresses).
    """

    kind: str
    hash: str
    data: bytes


@cache
def agent_bundle() -> Bundle:
    """The agent as it was when first asked: a daemon ships what it was started with.

    Raises:
        FileNotFoundError: this installation lacks a part of the agent.
    """
    package = _package_folder("dflash_supervise")
    files = {f"dflash_supervise/{name}": (package / name).read_bytes() for name in _AGENT_FILES}
    for part in _AGENT_PARTS:
        files.update(_sources(package / part, f"dflash_supervise/{part}"))
    files["pynvml.py"] = _module_file("pynvml").read_bytes()
    files["__main__.py"] = _MAIN
    return pack("agent", files)


@cache
def trainer_bundle() -> Bundle:
    """The bundled trainer.

    Raises:
        FileNotFoundError: this installation has no trainer.
    """
    return pack("trainer", _sources(_package_folder("dflash_trainer"), "dflash_trainer"))


def pack(kind: str, files: Mapping[str, bytes]) -> Bundle:
    """The same files give the same bytes, on every machine."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            member = zipfile.ZipInfo(name, _EPOCH)
            member.create_system = 3
            member.external_attr = 0o644 << 16
            archive.writestr(member, files[name])
    data = buffer.getvalue()
    return Bundle(kind=kind, hash=hashlib.sha256(data).hexdigest(), data=data)


def _sources(folder: Path, prefix: str) -> dict[str, bytes]:
    files = {
        f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    if not files:
        raise FileNotFoundError(f"{folder} holds no files to send to a host")
    return files


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {name} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def _module_file(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the module {name} is not installed")
    return Path(spec.origin)
