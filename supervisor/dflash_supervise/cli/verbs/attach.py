"""``attach``: the run's tmux session."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from dflash_supervise.cli import exits, options, say
from dflash_supervise.cli.errors import CliError


@click.command("attach")
@options.run_argument
@click.option("--write", is_flag=True, help="Also type into it; by default one can only look.")
@options.dry_run_option
@options.json_option
def command(run: str, write: bool, dry_run: bool, as_json: bool) -> int:
    """The run's tmux session on its host, through your own ssh. Leave with Ctrl-b d; the run goes on."""
    from dflash_supervise.cli import runs, session

    settings = session.settings()
    with session.connect() as api:
        found = runs.find(api, run)
    if found.get("kind") == "adopted":
        raise CliError(
            f"{runs.handle(found)} was started by somebody else, in a session that is not ours",
            fix="attach to it as it was started, on its host",
            exit_code=exits.REFUSED,
            code="not_ours",
        )
    argv = attach_command(
        found, write=write, ssh_config=settings.ssh.config_file, known_hosts=str(settings.known_hosts)
    )
    if as_json:
        say.document({"schema": 1, "run": found["id"], "argv": argv})
        return exits.DONE
    if dry_run:
        say.data(shlex.join(argv))
        return exits.DONE
    if not (os.isatty(0) and os.isatty(1)):
        raise CliError(
            "attach needs a terminal", fix=f"see what it would run: {shlex.join(argv)}", exit_code=exits.USAGE
        )
    say.talk("attaching; leave with Ctrl-b d, the run goes on")
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        why = "is not installed here" if isinstance(error, FileNotFoundError) else f"did not start: {error.strerror}"
        raise CliError(f"{argv[0]} {why}", fix=f"install it, or run: {shlex.join(argv)}") from error


def attach_command(run: dict[str, Any], *, write: bool, ssh_config: str, known_hosts: str) -> list[str]:
    """The argument list that shows the run's session: tmux itself for ``local:``, else ssh with a terminal.

    The remote line goes through /bin/sh, because a login shell may be any (zsh expands a leading ``=`` itself).
    """
    tmux = ["tmux", "-u", "-L", f"dflash-{os.getuid()}", "attach", "-t", f"=dflash-{run['id']}"]
    if not write:
        tmux.insert(5, "-r")
    target = str(run.get("target") or "")
    if target.startswith("local:"):
        return tmux
    user_host, port = _ssh_destination(target)
    session = shlex.quote(f"=dflash-{run['id']}")
    script = f"exec tmux -u -L dflash-$(id -u) attach {'' if write else '-r '}-t {session}"
    ssh = ["ssh", "-t"]
    if ssh_config:
        ssh += ["-F", ssh_config]
    if port:
        ssh += ["-p", port]
    # The key that the daemon was told to trust is as good for the user's own ssh.
    ssh += ["-o", f"UserKnownHostsFile=~/.ssh/known_hosts {known_hosts}"]
    return [*ssh, user_host, "exec /bin/sh -c " + shlex.quote(script)]


def _ssh_destination(target: str) -> tuple[str, str]:
    """``user@host`` and port of ``[user@]host[:port]:/path``; the daemon has checked its form."""
    where = target.partition(":/")[0]
    user, at, host = where.rpartition("@")
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        return user + at + host, rest.lstrip(":")
    host, _, port = host.partition(":")
    return user + at + host, port
