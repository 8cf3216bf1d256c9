"""What is built is what is needed, by way of the source archive as an installer would go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=110,
    )
    return folder


def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


def sources(folder: Path, package: str) -> set[str]:
    return {f"{package}/{path.relative_to(folder)}" for path in folder.rglob("*.py") if "__pycache__" not in path.parts}


def test_the_wheel_holds_both_packages_and_the_templates(built: Path) -> None:
    with wheel(built) as archive:
        names = set(archive.namelist())
    assert sources(ROOT / "supervisor" / "dflash_supervise", "dflash_supervise") <= names
    assert sources(ROOT / "trainer" / "dflash_trainer", "dflash_trainer") <= names
    assert {"dflash_supervise/py.typed", "dflash_trainer/py.typed"} <= names
    templates = [path for path in (ROOT / "templates").rglob("*") if path.is_file() and path.name[0] != "."]
    assert templates
    wanted = {f"dflash_supervise/templates/{path.relative_to(ROOT / 'templates')}" for path in templates}
    assert wanted <= names


def test_the_wheel_holds_nothing_else(built: Path) -> None:
    with wheel(built) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dflash_supervise", "dflash_trainer"}


def test_both_commands_lead_to_the_program(built: Path) -> None:
    with wheel(built) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        lines = archive.read(name).decode().splitlines()
    for command in ("dflash-supervise", "dsup"):
        assert f"{command} = dflash_supervise.cli.main:main" in lines


def test_a_laptop_needs_no_torch_and_an_ordinary_install_gets_ranges(built: Path) -> None:
    with wheel(built) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode().splitlines()
    needs = [line.partition(": ")[2] for line in metadata if line.startswith("Requires-Dist: ")]
    assert [need for need in needs if need.startswith("torch")] == ["torch>=2.11; extra == 'trainer'"]
    core = [need for need in needs if "extra ==" not in need]
    assert [need for need in core if "==" in need] == ["libtmux==0.62.0"]


def test_the_source_archive_can_run_the_tests(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert path.name == f"dflash_supervise-{version}.tar.gz"
    assert {"Makefile", "constraints.txt", "LICENSE", "tests/conftest.py", "tests/fakes/nvml/nvml.c"} <= names
    assert {"tests/fakes/fake-nvidia-smi", "deploy/Dockerfile", "pyproject.toml"} <= names


def test_fetching_the_front_end_says_one_line_of_ours_and_nothing_of_npms(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "templates" / "assets", tmp_path / "assets")
    (tmp_path / "bin").mkdir()
    npm = tmp_path / "bin" / "npm"
    files = "htmx.org/dist/htmx.min.js htmx.org/dist/ext/hx-sse.min.js htmx.org/LICENSE"
    files += " uplot/dist/uPlot.iife.min.js uplot/dist/uPlot.min.css uplot/LICENSE"
    npm.write_text(
        "#!/bin/sh\n"
        f'echo "$@" > {tmp_path}/asked\n'
        f"for file in {files}; do mkdir -p node_modules/$(dirname $file); touch node_modules/$file; done\n"
        "echo added 2 packages in 1s\n"
    )
    npm.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    script = str(tmp_path / "assets" / "vendor.sh")
    done = subprocess.run(["sh", script], env=env, capture_output=True, text=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == ("vendor: dashboard libraries are in place\n", "")
    asked = (tmp_path / "asked").read_text().split()
    assert {"--no-fund", "--no-audit", "--no-update-notifier", "--loglevel=error"} <= set(asked)
