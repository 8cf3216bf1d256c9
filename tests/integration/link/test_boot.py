"""The command that any login shell gets, and the Python that it finds."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dflash_supervise.link import LinkError, LinkSettings, boot
from dflash_supervise.link.boot import Hello, command, start_agent
from dflash_supervise.link.closer import Closer
from dflash_supervise.link.lines import LineSplitter
from dflash_supervise.link.stream import ProcessStream

# Whatever of these the machine has; the first two are always there.
SHELLS = [shell for shell in ("sh", "bash", "dash", "zsh", "ksh", "tcsh", "fish") if shutil.which(shell)]

Start = Callable[..., Hello]


@pytest.fixture
def start(settings: LinkSettings, workspace: Path) -> Iterator[Start]:
    closer = Closer()

    def begin(text: str | None = None, *, place: Path = workspace, environment: dict[str, str] | None = None) -> Hello:
        merged = None if environment is None else {**os.environ, **environment}
        stream = ProcessStream(text or command(str(place)), closer, merged)
        hello, _ = start_agent(stream, LineSplitter(), str(place), settings)
        return hello

    yield begin
    closer.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_any_login_shell_runs_the_command(start: Start, workspace: Path, shell: str) -> None:
    script = workspace / "command"
    script.write_text(command(str(workspace)))
    # As sshd does it: the login shell gets the command as one word after -c.
    assert start(f'exec {shell} -c "$(cat {script})"').said["t"] == "hello"


def test_the_command_holds_nothing_that_a_login_shell_could_expand() -> None:
    text = command("/work")
    inside = text.split("'")
    assert len(inside) == 3 and not set("!\n`") & set(text)
    # fish eats a backslash before a backslash or a quote, inside single quotes too.
    assert "\\\\" not in text


def test_a_workspace_with_an_odd_name_is_not_put_into_the_command(start: Start, workspace: Path) -> None:
    odd = workspace / 'it\'s $(touch pwned) `x` "y" !z'
    odd.mkdir()
    assert start(place=odd).notes == ()
    assert (odd / ".dflash" / "agent").is_dir()
    assert "pwned" not in command(str(odd))


def test_a_broken_path_does_not_matter(start: Start) -> None:
    assert Path(start(environment={"PATH": "/nowhere"}).executable).is_absolute()


def test_only_a_python_of_the_workspace_is_found_too(start: Start, workspace: Path) -> None:
    folder = workspace / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(sys.executable)
    assert start(hide_pythons(command(str(workspace)))).said["t"] == "hello"


def test_a_shim_is_passed_through_to_the_python_behind_it(start: Start, workspace: Path) -> None:
    shim = fake_python(workspace / "shims" / "python3", f'exec {os.path.realpath(sys.executable)} "$@"')
    hello = start(hide_pythons(command(str(workspace))), environment={"PATH": str(shim.parent)})
    assert "shims" not in hello.executable


def test_an_old_python_is_passed_over_and_named(start: Start, workspace: Path) -> None:
    old = fake_python(workspace / "bin" / "python3", "exit 1")
    with pytest.raises(LinkError) as none:
        start(hide_pythons(command(str(workspace))), environment={"PATH": str(old.parent)})
    assert none.value.code == "no_python" and str(old) in none.value.message


def test_an_agent_that_another_user_could_have_put_there_is_not_run(start: Start, workspace: Path) -> None:
    start()
    agent = next((workspace / ".dflash" / "agent").iterdir())
    agent.chmod(0o775)
    again = start()
    assert again.pushed is True


def test_a_half_unpacked_agent_is_replaced(start: Start, workspace: Path) -> None:
    start()
    agent = next((workspace / ".dflash" / "agent").iterdir())
    (agent / ".complete").unlink()
    (agent / "__main__.py").write_text("raise SystemExit(9)")
    assert start().pushed is True
    assert [path.name for path in (workspace / ".dflash" / "agent").iterdir()] == [agent.name]
    assert (agent / ".complete").exists() and "SystemExit(9)" not in (agent / "__main__.py").read_text()


def test_a_workspace_that_cannot_be_written_gives_way_to_the_runtime_folder(
    start: Start, workspace: Path, isolated_home: Path
) -> None:
    (workspace / ".dflash").write_text("a file in the way")
    hello = start()
    assert "not a folder of ours alone" in hello.notes[0]
    assert list((isolated_home / "run" / "dflash" / "agent").glob("*/.complete"))


def test_without_any_place_the_error_names_them(start: Start, workspace: Path) -> None:
    (workspace / ".dflash").write_text("a file in the way")
    with pytest.raises(LinkError) as nowhere:
        start(environment={"XDG_RUNTIME_DIR": "/proc"})
    assert nowhere.value.code == "workspace_not_writable"
    assert str(workspace) in nowhere.value.message and "/proc" in nowhere.value.message


def hide_pythons(text: str) -> str:
    """The command for a host that has no Python in the usual places."""
    head, tail = text.split(boot._FOLDERS, 1)
    kept = ":".join(folder for folder in boot._FOLDERS.split(":") if folder in ("$1", "$PATH"))
    return head + kept + tail


def fake_python(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path
