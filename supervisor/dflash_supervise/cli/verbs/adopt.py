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
@click.option("--pid", type=options.whole(2), help="Its main process.")
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

    With --tmux or --pid: verdicts and evidence for what runs there. Nothing is done to it by itself; only your own
    `stop` ends it, after it has shown the processes and asked.

    With neither: the runs that another supervisor began in the workspace are ours from now on, each with the
    policy it has; the other supervisor only reads them.
    """
    from dflash_supervise.cli import runs, session, watch
    from dflash_supervise.cli.trust import trusting

    _check(tmux, pid, log, name)
    request = {"target": target, "tmux": tmux, "pid": pid, "log": log, "name": name}
    request = {key: value for key, value in request.items() if value is not None}
    if dry_run:
        return _dry_run(request, as_json)
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
    say.talk(f"watching {run['name']}; nothing is done to it unless you say `stop`")
    say.talk(f"see: {words.command('why', runs.handle(run))}")
    return exits.DONE


def _dry_run(request: dict[str, Any], as_json: bool) -> int:
    """The request as it would be sent; nothing is contacted."""
    if as_json:
        say.document({"schema": 1, "dry_run": True, "request": request})
        return exits.DONE
    what = f"process {request['pid']}" if "pid" in request else f"tmux session {request.get('tmux')}"
    named = f", as {request['name']}" if "name" in request else ""
    logged = f", with the log {request['log']}" if "log" in request else ""
    if "tmux" in request or "pid" in request:
        say.data(f"would watch {what} on {request['target']}{logged}{named}")
    else:
        say.data(f"would take over the runs in {request['target']}")
    say.talk("nothing was contacted and nothing was changed; `doctor TARGET` checks the host")
    return exits.DONE


def _check(tmux: str | None, pid: int | None, log: str | None, name: str | None) -> None:
    """Refuse what is wrong or contradicts itself, before anybody is asked."""
    from dflash_supervise.cli.start_request import check_name

    if tmux is not None and pid is not None:
        raise CliError("--tmux and --pid exclude each other", fix="name one of them", exit_code=exits.USAGE)
    for option, value in (("--log", log), ("--name", name)):
        if value is not None and tmux is None and pid is None:
            raise CliError(
                f"{option} goes with --tmux or --pid only; a run that is taken over keeps its own",
                fix="name what to watch: --tmux SESSION or --pid PID",
                exit_code=exits.USAGE,
            )
    for option, value in (("--log", log), ("--tmux", tmux)):
        if value == "":
            raise CliError(f"{option} is empty", fix="leave it out, or give it a value", exit_code=exits.USAGE)
    check_name(name)
    if log is not None and not log.startswith("/"):
        raise CliError(f"--log {log!r} is not absolute", fix="give the path from / on", exit_code=exits.USAGE)


def _taken_over(api: Api, run_ids: list[str], as_json: bool) -> int:
    from dflash_supervise.cli import runs

    taken: list[dict[str, Any]] = [api.get(f"/runs/{run_id}") for run_id in run_ids]
    if as_json:
        say.document({"schema": 1, "runs": taken})
        return exits.DONE
    for run in clean.document(taken):
        say.data(str(run["id"]))
        # Nobody owns what is over; its history can be read here.
        said = "is over; its records are here now" if run.get("final") else "is ours now"
        say.talk(f"{runs.handle(run)} {said}")
    return exits.DONE
