"""``completion``: for a shell's start-up file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dflash_supervise.cli import exits, say
from dflash_supervise.cli.errors import CliError

_FILES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/dflash-supervise.fish"}


@click.command("completion")
@click.argument("shell", required=False, type=click.Choice(tuple(_FILES)))
def command(shell: str | None) -> int:
    """Print the completion script for SHELL, by default the one that you use. It knows run names and targets.

    For example: dflash-supervise completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    from dflash_supervise.cli.main import COMPLETE_OF, cli

    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in _FILES:
        what = f"no completion for the shell {name}" if name else "which shell you use is not known"
        raise CliError(what, fix="name one: bash, zsh or fish", exit_code=exits.USAGE)
    kind = get_completion_class(name)
    assert kind is not None
    for program, variable in COMPLETE_OF.items():
        say.data(kind(cli, {}, program, variable).source())
    say.talk(f"append it to {_FILES[name]}")
    return exits.DONE
