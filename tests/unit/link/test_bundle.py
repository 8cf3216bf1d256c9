"""What travels to a host is named by its content and complete in itself."""

from __future__ import annotations

import ast
import hashlib
import io
import zipfile
from pathlib import Path

import dflash_supervise.link
from dflash_supervise.link.bundle import agent_bundle, pack, trainer_bundle


def names(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


def test_the_same_files_give_the_same_bytes_in_any_order() -> None:
    files = {"b/x.py": b"1", "a.py": b"2"}
    again = dict(reversed(files.items()))
    assert pack("agent", files).data == pack("agent", again).data
    assert pack("agent", files).hash == hashlib.sha256(pack("agent", files).data).hexdigest()


def test_one_changed_byte_or_name_gives_another_name() -> None:
    hashes = {pack("agent", files).hash for files in ({"a.py": b"1"}, {"a.py": b"2"}, {"b.py": b"1"})}
    assert len(hashes) == 3


def test_the_agent_holds_what_it_imports_and_nothing_else_of_ours() -> None:
    found = names(agent_bundle().data)
    tops = {name.split("/")[1] for name in found if name.startswith("dflash_supervise/")}
    assert tops == {"__init__.py", "wire.py", "core", "agent"}
    assert {"__main__.py", "pynvml.py", "dflash_supervise/agent/main.py"} <= set(found)
    assert not [name for name in found if "__pycache__" in name]


def test_the_agents_sources_import_only_what_travels() -> None:
    archive = zipfile.ZipFile(io.BytesIO(agent_bundle().data))
    for name in archive.namelist():
        if not name.startswith("dflash_supervise/"):
            continue
        for node in ast.walk(ast.parse(archive.read(name) if name.endswith(".py") else b"")):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            ours = [m for m in modules if m.startswith("dflash_supervise.")]
            assert all(m.split(".")[1] in ("core", "agent", "wire") for m in ours), (name, ours)


def test_the_trainer_travels_whole() -> None:
    found = names(trainer_bundle().data)
    assert "dflash_trainer/py.typed" in found and all(name.startswith("dflash_trainer/") for name in found)


def test_what_runs_first_on_a_host_keeps_to_python_3_8() -> None:
    source = (Path(dflash_supervise.link.__file__).parent / "remote_boot.py").read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= {"io", "json", "os", "stat", "sys", "hashlib", "zlib", "shutil", "zipfile"}
