"""What nearly every verb needs first: the settings, and a connection to the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_supervise.cli import exits, say, words
from dflash_supervise.cli.errors import CliError, Detached

if TYPE_CHECKING:
    from dflash_supervise.cli.api import Api
    from dflash_supervise.config import Settings


def settings(*files: str, **flags: object) -> Settings:
    """The effective configuration; flags are dotted keys with ``__`` for the dot.

    Raises:
        CliError: a wrong setting (exit 2).
    """
    from dflash_supervise.config import ConfigError, load

    given = {key.replace("__", "."): value for key, value in flags.items()}
    try:
        return load(files=tuple(Path(file) for file in files) or None, flags=given)
    except ConfigError as error:
        raise CliError(str(error), exit_code=exits.USAGE, code="config_error") from error


def connect() -> Api:
    """The running daemon's API, or CliError with exit 7."""
    from dflash_supervise.cli import api

    return api.connect(settings().state_dir)


def connect_or_start(wanted: Settings) -> Api:
    """The daemon's API; a daemon is brought up first when none is running, and the user is told."""
    from dflash_supervise.cli import api

    try:
        running = api.connect(wanted.state_dir)
        running.get("/hosts")
    except CliError as error:
        if error.exit_code != exits.NO_DAEMON:
            raise
    else:
        return running
    from dflash_supervise.daemon.identity import reason
    from dflash_supervise.daemon.spawn import NotStarted, ensure_running

    try:
        ensure_running(wanted)
    except OSError as error:
        raise CliError(
            f"the state folder cannot be used: {reason(error)}",
            fix=f"see where it is: {words.command('config', 'path')}",
            exit_code=exits.USAGE,
            code="bad_state_dir",
        ) from error
    except NotStarted as error:
        raise CliError(
            str(error),
            fix=f"see it for yourself: {words.command('daemon', 'run')}; its log: {wanted.log_file}",
            exit_code=exits.NO_DAEMON,
            code="daemon_not_started",
        ) from error
    started = api.connect(wanted.state_dir)
    say.talk(f"daemon started in the background; dashboard: {started.url} (dflash-supervise open)")
    return started


@contextmanager
def detaching(message: str) -> Iterator[None]:
    """Ctrl-C inside leaves what is watched alone and says how to come back."""
    try:
        yield
    except KeyboardInterrupt:
        raise Detached(message) from None
