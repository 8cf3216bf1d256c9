"""``config``: what is in force, and where it was said."""

from __future__ import annotations

from pathlib import Path

import click

from dflash_supervise.cli import exits, options, say, session
from dflash_supervise.cli.errors import CliError
from dflash_supervise.cli.options import F


def _files(function: F) -> F:
    """Files instead of the usual places, as an option like the other verbs' or as arguments."""
    known = click.Path(exists=True, dir_okay=False)
    function = click.option("--config", "more", multiple=True, type=known, help="This file only; may be given again.")(
        function
    )
    return click.argument("files", nargs=-1, type=known)(function)


@click.group("config", cls=options.Verbs)
def command() -> None:
    """The configuration: the file at the XDG place, ./dflash.toml, DFLASH_SUPERVISE_* variables, then flags."""


@command.command("show")
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@_files
@options.json_option
def show(origin: bool, files: tuple[str, ...], more: tuple[str, ...], as_json: bool) -> int:
    """Every key with its value; with FILES, what they would give."""
    from dflash_supervise.cli import table
    from dflash_supervise.config import settings_rows

    found = settings_rows(session.settings(*files, *more))
    if as_json:
        say.document({"schema": 1, "settings": [{"key": k, "value": v, "origin": o} for k, v, o in found]})
        return exits.DONE
    body = [[key, value, where] if origin else [key, value] for key, value, where in found]
    say.data("\n".join(table.rows((), body, style=say.stdout_style())))
    return exits.DONE


@command.command("check")
@_files
@options.json_option
def check(files: tuple[str, ...], more: tuple[str, ...], as_json: bool) -> int:
    """Read it all and say everything that is wrong, a line each with file and key (exit 2)."""
    _refuse_what_is_wrong((*files, *more))
    settings = session.settings(*files, *more)
    if as_json:
        say.document({"schema": 1, "ok": True, "files": list(settings.files)})
    else:
        read = ", ".join(settings.files) or "no file, only the defaults"
        say.talk(f"nothing is wrong with it ({read})")
    return exits.DONE


def _refuse_what_is_wrong(files: tuple[str, ...]) -> None:
    from dflash_supervise.config import problems

    wrong = problems(files=tuple(map(Path, files)) or None)
    if not wrong:
        return
    lines = [error.message for error in wrong]
    raise CliError(
        lines[0] if len(lines) == 1 else "\n  ".join((f"{len(lines)} things are wrong", *lines)),
        exit_code=exits.USAGE,
        code="config_error",
        evidence=[{"where": one.where, "key": one.key, "message": one.message, "fix": one.fix} for one in wrong],
    )


@command.command("path")
@options.json_option
def path(as_json: bool) -> int:
    """Where the configuration is read from and the state kept."""
    from dflash_supervise.config.schema import user_config_file

    settings = session.settings()
    places = {
        "config": str(user_config_file()),
        "state": str(settings.state_dir),
        "log": str(settings.log_file),
        "known_hosts": str(settings.known_hosts),
    }
    if as_json:
        say.document({"schema": 1, **places, "read": list(settings.files)})
        return exits.DONE
    for name, place in places.items():
        mark = "  (read)" if place in settings.files else ""
        say.data(f"{name:<12} {place}{mark}")
    for file in settings.files:
        if file != places["config"]:
            say.data(f"{'also read':<12} {file}")
    return exits.DONE
