"""Every import contract holds, and each can fail: a planted import breaks it by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
CONTRACTS: dict[str, str] = {
    contract["id"]: contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}

# contract, the file that gets the import (made when it is not there), the import
PLANTS = [
    ("inwards", "supervisor/dflash_supervise/core/planted.py", "import dflash_supervise.wire"),
    ("inwards", "supervisor/dflash_supervise/wire.py", "import dflash_supervise.config"),
    ("inwards", "supervisor/dflash_supervise/config/planted.py", "import dflash_supervise.store"),
    ("inwards", "supervisor/dflash_supervise/store/planted.py", "import dflash_supervise.link"),
    ("inwards", "supervisor/dflash_supervise/agent/planted.py", "import dflash_supervise.alerts"),
    ("inwards", "supervisor/dflash_supervise/link/planted.py", "import dflash_supervise.web"),
    ("inwards", "supervisor/dflash_supervise/web/planted.py", "import dflash_supervise.cli"),
    ("pure-core", "supervisor/dflash_supervise/core/planted.py", "import socket"),
    ("pure-core", "supervisor/dflash_supervise/core/planted.py", "from time import monotonic"),
    ("pure-core", "supervisor/dflash_supervise/core/planted.py", "import rich"),
    ("keeper", "supervisor/dflash_supervise/agent/keep.py", "import dflash_supervise.core"),
    ("keeper", "supervisor/dflash_supervise/agent/keep.py", "import dflash_supervise.agent.gpus"),
    ("keeper", "supervisor/dflash_supervise/agent/gate.py", "import dflash_supervise.wire"),
    ("travels", "supervisor/dflash_supervise/agent/planted.py", "import dflash_supervise.config"),
    ("travels", "supervisor/dflash_supervise/wire.py", "import click"),
    ("ssh", "supervisor/dflash_supervise/cli/planted.py", "import paramiko"),
    ("ssh", "supervisor/dflash_supervise/agent/planted.py", "import libtmux"),
    ("database", "supervisor/dflash_supervise/web/planted.py", "from sqlalchemy import select"),
    ("no-way-to-a-host", "supervisor/dflash_supervise/web/planted.py", "import dflash_supervise.link"),
    ("no-way-to-a-host", "supervisor/dflash_supervise/cli/planted.py", "import dflash_supervise.link"),
    ("trainer-apart", "supervisor/dflash_supervise/cli/planted.py", "import dflash_trainer"),
    ("trainer-apart", "trainer/dflash_trainer/planted.py", "import dflash_supervise.core"),
    ("trainer-alone", "trainer/dflash_trainer/planted.py", "import httpx"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of both packages and of the contracts."""
    for folder in ("supervisor", "trainer"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(tree / "supervisor"), str(tree / "trainer")])
    return subprocess.run(
        [str(LINT_IMPORTS), "--no-cache", *options],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_every_contract_holds(tree: Path) -> None:
    done = lint(tree)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in done.stdout


def test_every_contract_has_an_import_that_breaks_it() -> None:
    assert {contract for contract, _, _ in PLANTS} == set(CONTRACTS)


@pytest.mark.parametrize(("contract", "file", "line"), PLANTS)
def test_a_planted_import_breaks_its_contract(tree: Path, contract: str, file: str, line: str) -> None:
    with (tree / file).open("a") as planted:
        planted.write(f"\n{line}\n")
    done = lint(tree, "--contract", contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{CONTRACTS[contract]} BROKEN" in done.stdout
