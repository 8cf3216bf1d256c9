"""``adopt``: watch what somebody started by hand."""

from __future__ import annotations

import click

from dflash_supervise.cli import exits, options, say, words
from dflash_supervise.cli.errors import CliError


@click.command("adopt")
@options.target_argument
@click.option("--tmux", help="The tmux session it runs in.")
@click.option("--pid", type=click.IntRange(min=2), help="Its main process.")
@click.option("--log", help="Absolute path of the log that it writes, on the host.")
@click.option("--name", help="Name of the run; default: the workspace's folder name.")
@options.yes_option
@options.dry_run_option
@options.json_option
def command(
    target: str,
    tmux: str | None,
    pid: int | None,
    log: str | None,
    name: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Watch what somebody started by hand: verdicts and evidence, and no action of any kind."""
    from dflash_supervise.cli import session, watch
    from dflash_supervise.cli.trust import trusting

    if (tmux is None) == (pid is None):
        raise CliError(
            "what to adopt is not clear", fix="name one of --tmux SESSION and --pid PID", exit_code=exits.USAGE
        )
    if log is not None and not log.startswith("/"):
        raise CliError(f"--log {log!r} is not absolute", fix="give the path from / on", exit_code=exits.USAGE)
    request = {"target": target, "tmux": tmux, "pid": pid, "log": log, "name": name}
    request = {key: value for key, value in request.items() if value is not None}
    if dry_run:
        say.document({"schema": 1, "dry_run": True, "request": request})
        return exits.DONE
    with session.connect_or_start(session.settings()) as api:
        done = trusting(
            api,
            target,
            lambda: watch.operation(api, str(api.post("/adopt", request)["operation"]), say.StatusLine()),
            yes=yes,
        )
        run = api.get(f"/runs/{done['run_id']}")
    if as_json:
        say.document({"schema": 1, "run": run})
        return exits.DONE
    say.data(str(run["id"]))
    say.talk(f"watching {run['name']}; nothing is acted on. See: {words.command('why', str(run['name']))}")
    return exits.DONE
