"""The program as a whole: what it imports, and that every verb explains itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dflash_supervise.cli import exits, main

# Each of these alone costs more than the whole program may.
HEAVY = (
    "rich",
    "httpx",
    "paramiko",
    "sqlalchemy",
    "fastapi",
    "uvicorn",
    "libtmux",
    "jinja2",
    "pydantic",
    "torch",
    "asyncio",
)


def modules_after(tmp_path: Path, *arguments: str) -> set[str]:
    """What a fresh interpreter has imported when the program is about to exit."""
    script = (
        "import atexit, json, os, sys\n"
        "atexit.register(lambda: open(os.environ['SEEN'], 'w').write(json.dumps(list(sys.modules))))\n"
        "from dflash_supervise.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    seen = tmp_path / "seen.json"
    env = {**os.environ, "SEEN": str(seen), "DFLASH_SUPERVISE_STATE_DIR": str(tmp_path / "s")}
    subprocess.run([sys.executable, "-c", script, *arguments], env=env, capture_output=True, check=False, cwd=tmp_path)
    return set(json.loads(seen.read_text()))


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["--help"], (*HEAVY, "tomllib", "dflash_supervise.config")),
        (["--version"], (*HEAVY, "tomllib", "dflash_supervise.config")),
        (["start", "--help"], (*HEAVY, "dflash_supervise.config")),
        (["ps"], HEAVY),
        (["why", "x"], HEAVY),
        (["config", "show"], HEAVY),
        (["diagnose", "/no/such/log"], (*HEAVY, "tomllib", "dflash_supervise.config", "dflash_supervise.cli.api")),
        (["completion", "bash"], HEAVY),
    ],
)
def test_a_verb_imports_only_what_it_needs(tmp_path: Path, arguments: list[str], forbidden: tuple[str, ...]) -> None:
    loaded = modules_after(tmp_path, *arguments)
    assert "dflash_supervise.cli.main" in loaded
    assert loaded.isdisjoint(forbidden), sorted(loaded & set(forbidden))


def test_a_verb_does_not_import_other_verbs(tmp_path: Path) -> None:
    verbs = {name for name in modules_after(tmp_path, "ps") if name.startswith("dflash_supervise.cli.verbs.")}
    assert verbs == {"dflash_supervise.cli.verbs.ps"}


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(command)
    if not isinstance(command, click.Group):
        return [(path, command)]
    children = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [leaf for name, child in children if child is not None for leaf in leaves(child, (*path, name))]


ALL = leaves(main.cli)


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _command in ALL])
def test_every_verb_and_every_option_is_explained(path: tuple[str, ...], command: click.Command) -> None:
    assert command.help and len(command.help) > 20
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help or parameter.metavar, f"{' '.join(path)} {parameter.name}"


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _command in ALL])
def test_json_is_everywhere_and_dry_run_on_everything_that_acts(path: tuple[str, ...], command: click.Command) -> None:
    names = {option for parameter in command.params for option in parameter.opts}
    if path not in (("completion",), ("daemon", "run")):
        assert "--json" in names
    if path[-1] in ("start", "adopt", "stop", "restart", "hold", "release") or path == ("daemon", "stop"):
        assert "--dry-run" in names


def test_help_lists_every_verb_and_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    text = capsys.readouterr().out
    for _section, name, summary in main.VERBS:
        assert f"  {name}" in text and summary.split(";")[0][:20] in text
    for code, meaning in exits.MEANINGS:
        assert f"{code}" in text and meaning[:20] in text


def test_a_wrong_verb_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["strat"]) == 2
    assert "did you mean start" in capsys.readouterr().err


def test_completion_of_a_run_without_a_daemon_is_silent(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "_DFLASH_SUPERVISE_COMPLETE": "bash_complete",
        "COMP_WORDS": "dflash-supervise why ",
        "COMP_CWORD": "2",
        "DFLASH_SUPERVISE_STATE_DIR": str(tmp_path),
    }
    program = "import sys; sys.argv[0] = 'dflash-supervise'; from dflash_supervise.cli.main import main; main([])"
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    program = "from dflash_supervise.cli.main import main; main(['--help'])"
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "{sys.executable}" -c "{program}" | true'], capture_output=True, check=False
    )
    assert done.returncode == 0 and done.stderr == b""
