"""What every file of the repository keeps to."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "supervisor", ROOT / "trainer")
MAX_LINES = 300
TRAVELS = ("core", "agent", "wire.py")
SUPERVISE = ROOT / "supervisor" / "dflash_supervise"


def repository_files() -> list[Path]:
    """Files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in files if path.is_file()]


def text_files() -> Iterator[tuple[str, str]]:
    for path in repository_files():
        try:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or a recording


def python_files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted(package.rglob("*.py"))


def travelling_files() -> list[Path]:
    found: list[Path] = []
    for name in TRAVELS:
        path = SUPERVISE / name
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return found


def test_no_module_is_longer_than_a_person_reads_at_once() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in python_files()}
    assert {name: lines for name, lines in sizes.items() if lines >= MAX_LINES} == {}


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = re.compile(r"^(utils?|helpers?|misc|common)$")
    named = [path for path in python_files() if drawers.match(path.stem) or drawers.match(path.parent.name)]
    assert named == []


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("an unfinished place", r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"),
        ("a folder of one machine", r"(?<![\w.])/(work|root|home/[a-z]\w*|Users)/(main|scratch|shared|\w+)/"),
        ("an exception without a trace", r"except Exception:\s*\n?\s*pass\b"),
        ("a silenced type error without its code", r"# type: ignore(?!\[)"),
        ("a test that does not run", r"pytest\.mark\.(skip|skipif|xfail)|pytest\.skip\("),
    ],
)
def test_no_file_has(what: str, pattern: str) -> None:
    wrong = []
    for name, text in text_files():
        if name == "tests/meta/test_repository.py":
            continue
        for match in re.finditer(pattern, text):
            line = text.count("\n", 0, match.start()) + 1
            wrong.append(f"{name}:{line}: {what}: {match.group(0)!r}")
    assert wrong == []


def test_code_is_ascii() -> None:
    wrong = []
    for path in repository_files():
        if path.suffix in (".py", ".c", ".h", ".sh") and not path.read_bytes().isascii():
            wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []


def test_what_travels_to_a_host_parses_as_python_3_8() -> None:
    files = travelling_files()
    assert files
    for path in files:
        ast.parse(path.read_text(), str(path), feature_version=(3, 8))


def test_the_core_imports_only_itself_and_the_standard_library() -> None:
    files = sorted((SUPERVISE / "core").rglob("*.py"))
    assert files
    strangers = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level:
                inside = len(path.relative_to(SUPERVISE / "core").parts)  # dots up to core itself
                modules = ["dflash_supervise.core" if node.level <= inside else "." * node.level]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            else:
                continue
            for module in modules:
                ours = module == "dflash_supervise.core" or module.startswith("dflash_supervise.core.")
                if not ours and module.partition(".")[0] not in sys.stdlib_module_names:
                    strangers.append(f"{path.name}: {module}")
    assert strangers == []


def test_constraints_pin_every_package_and_name_no_place() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    assert "torch==2.13.0" in lines


def test_every_make_target_has_help_and_is_phony() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][a-z0-9-]*):(?!=)(.*)$", makefile, re.MULTILINE)
    phony = set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE))
    assert [name for name, rest in targets if "## " not in rest] == []
    assert {name for name, _ in targets} == phony


def test_plain_make_lists_every_target() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    targets = re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [name for name in targets if not re.search(rf"^  {name}\s", shown, re.MULTILINE)] == []


def test_package_project_and_changelog_say_one_version() -> None:
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    written = re.search(r'^__version__ = "(.+)"$', (SUPERVISE / "__init__.py").read_text(), re.MULTILINE)
    assert declared is not None and written is not None
    assert declared.group(1) == written.group(1)
    assert f"## [{declared.group(1)}]" in (ROOT / "CHANGELOG.md").read_text()
