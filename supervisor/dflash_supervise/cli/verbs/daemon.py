"""``daemon``: the process that follows the hosts and serves the dashboard."""

from __future__ import annotations

from time import monotonic, sleep

import click

from dflash_supervise.cli import exits, options, say, words
from dflash_supervise.cli.errors import CliError

_STOP_S = 20.0


@click.group("daemon", cls=options.Verbs)
def command() -> None:
    """The daemon of this machine. Runs go on without it; it is their memory, screen and voice."""


@command.command("run")
@click.option("--port", type=options.PORT, help="Port of the dashboard; default 8000, 0 for any free one.")
@click.option("--config", "config_file", type=click.Path(exists=True, dir_okay=False), help="This file only.")
def run_daemon(port: int | None, config_file: str | None) -> int:
    """Run in the foreground until Ctrl-C or SIGTERM."""
    from dflash_supervise.cli import session

    files = (config_file,) if config_file else ()
    settings = session.settings(*files, daemon__port=port)
    from dflash_supervise.daemon.main import run

    return run(settings)


@command.command("status")
@options.json_option
def status(as_json: bool) -> int:
    """Whether it runs, and where its dashboard is (exit 7: none runs)."""
    from dflash_supervise.cli import runs, session

    settings = session.settings()
    with session.connect() as api:
        found = runs.all_runs(api)
        url, info = api.url, api.facts
    alive = [run for run in found if not run.get("final")]
    if as_json:
        facts = {"pid": info.get("pid"), "url": url, "version": info.get("version")}
        say.document({"schema": 1, "running": True, **facts, "runs": len(found), "runs_alive": len(alive)})
        return exits.DONE
    say.data(f"running   pid {info.get('pid')}, version {info.get('version')}")
    say.data(f"dashboard {url}   ({words.command('open')})")
    say.data(f"runs      {len(alive)} not ended, {len(found)} known")
    say.data(f"state     {settings.state_dir}")
    say.data(f"log       {settings.log_file}")
    return exits.DONE


@command.command("stop")
@options.dry_run_option
@options.json_option
def stop(dry_run: bool, as_json: bool) -> int:
    """Stop the daemon. Every run goes on, and is found again when it starts next."""
    from dflash_supervise.cli import session

    with session.connect() as api:
        if dry_run:
            api.get("/hosts")  # a file that a dead daemon left behind is no daemon
            if as_json:
                say.document({"schema": 1, "dry_run": True, "url": api.url})
            else:
                say.talk(f"would stop the daemon at {api.url}; nothing was changed")
            return exits.DONE
        api.post("/daemon/stop")
        deadline = monotonic() + _STOP_S
        while True:
            try:
                api.get("/hosts")
            except CliError as error:
                if error.exit_code == exits.NO_DAEMON:
                    break
                raise
            if monotonic() > deadline:
                raise CliError(
                    f"the daemon has not ended within {words.duration(_STOP_S)}",
                    fix="look at its log: " + str(session.settings().log_file),
                )
            sleep(0.2)
    if as_json:
        say.document({"schema": 1, "stopped": True})
    else:
        say.talk("the daemon has stopped; every run goes on")
    return exits.DONE
