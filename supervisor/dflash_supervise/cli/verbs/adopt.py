"""``adopt``: watch what somebody started by hand, or take over the runs of another supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dflash_supervise.cli import clean, exits, options, say, words
from dflash_supervise.cli.errors import CliError

if TYPE_CHECKING:
    from dflash_supervise.cli.api import Api


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
    """Watch what somebody started by hand, or take over the workspace's runs.

    With --tmux or --pid: verdicts and evidence for what runs there, and no action of any kind.
    With neither: the runs that another supervisor began in the workspace are ours from now on, each with the
    policy it has; the other supervisor only reads them.
    """
    from dflash_supervise.cli import session, watch
    from dflash_supervise.cli.trust import trusting

    _check(tmux, pid, log, name)
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
        if tmux is None and pid is None:
            return _taken_over(api, done["run_ids"], as_json)
        run = api.get(f"/runs/{done['run_id']}")
    if as_json:
        say.document({"schema": 1, "run": run})
        return exits.DONE
    run = clean.document(run)
    say.data(str(run["id"]))
    say.talk(f"watching {run['name']}; nothing is acted on. See: {words.command('why', str(run['name']))}")
    return exits.DONE


def _check(tmux: str | None, pid: int | None, log: str | None, name: str | None) -> None:
    """Refuse what contradicts itself, before anybody is asked."""
    if tmux is not None and pid is not None:
        raise CliError("--tmux and --pid exclude each other", fix="name one of them", exit_code=exits.USAGE)
    for option, value in (("--log", log), ("--name", name)):
        if value is not None and tmux is None and pid is None:
            raise CliError(
                f"{option} goes with --tmux or --pid only; a run that is taken over keeps its own",
                fix="name what to watch: --tmux SESSION or --pid PID",
                exit_code=exits.USAGE,
            )
    if log is not None and not log.startswith("/"):
        raise CliError(f"--log {log!r} is not absolute", fix="give the path from / on", exit_code=exits.USAGE)


def _taken_over(api: Api, run_ids: list[str], as_json: bool) -> int:
    runs: list[dict[str, Any]] = [api.get(f"/runs/{run_id}") for run_id in run_ids]
    if as_json:
        say.document({"schema": 1, "runs": runs})
        return exits.DONE
    for run in clean.document(runs):
        say.data(str(run["id"]))
        # Nobody owns what is over; its history can be read here.
        said = "is over; its records are here now" if run.get("final") else "is ours now"
        say.talk(f"{run['name']} {said}")
    return exits.DONE
