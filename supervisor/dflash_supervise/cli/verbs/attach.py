"""``attach``: the run's tmux session."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
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
    argv = attach_command(found, write=write, ssh_config=settings.ssh.config_file, accepted=settings.known_hosts)
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


def attach_command(run: dict[str, Any], *, write: bool, ssh_config: str, accepted: Path) -> list[str]:
    """The argument list that shows the run's session: tmux itself for ``local:``, else ssh with a terminal.

    ``accepted`` is the file of the host keys that the daemon was told to trust. The remote line goes through /bin/sh,
    because a login shell may be any (zsh expands a leading ``=`` itself).
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
    options = ["-F", ssh_config] if ssh_config else []
    options += ["-p", port] if port else []
    options += _also_accepted(accepted, [*options, "--", user_host])
    return ["ssh", "-t", *options, user_host, "exec /bin/sh -c " + shlex.quote(script)]


def _also_accepted(accepted: Path, destination: list[str]) -> list[str]:
    """The option by which the key that the daemon was told to trust is as good for the user's own ssh.

    It joins the machine's files, which ssh only reads. The user's own list stays as it is configured: to its first
    file ssh adds what the user accepts, and in all of its files it may replace keys.
    """
    if not accepted.is_file():
        return []
    words = [_quoted(os.path.abspath(accepted)), *_machine_known_hosts(destination)]
    return ["-o", "GlobalKnownHostsFile=" + " ".join(words)]


def _machine_known_hosts(destination: list[str]) -> list[str]:
    """What the ssh configuration says of this host, as OpenSSH itself reads it.

    Raises:
        CliError: it cannot read it, and so could not attach either (exit 2).
    """
    import subprocess

    words = ["ssh", "-G", *destination]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return []  # there is no ssh: said when it is to attach
    except subprocess.TimeoutExpired as error:
        raise CliError(f"`{shlex.join(words)}` took more than 30 s", fix="mend the ssh configuration") from error
    if done.returncode != 0:
        raise CliError(
            f"`{shlex.join(words)}` failed: {done.stderr.strip()}",
            fix="mend the ssh configuration",
            exit_code=exits.USAGE,
            code="ssh_config",
        )
    found = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("globalknownhostsfile ")]
    return [file for file in (found[0] if found else []) if file != "none"]


def _quoted(path: str) -> str:
    """A path as one word of an ssh option."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if escaped != path or any(c.isspace() or c == "'" for c in path) else path


def _ssh_destination(target: str) -> tuple[str, str]:
    """``user@host`` and port of ``[user@]host[:port]:/path``; the daemon has checked its form."""
    where = target.partition(":/")[0]
    user, at, host = where.rpartition("@")
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        return user + at + host, rest.lstrip(":")
    host, _, port = host.partition(":")
    return user + at + host, port
