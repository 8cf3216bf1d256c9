"""``start``: from nothing to the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dflash_supervise.cli import clean, exits, marks, options, say, words

if TYPE_CHECKING:
    from dflash_supervise.cli.api import Api


@click.command("start", context_settings={"ignore_unknown_options": False})
@options.target_argument
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--detach", "-d", is_flag=True, help="Return once it is launched.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Follow it to its end; the exit status is the run's.")
@click.option("--name", help="Name of the run; default: the workspace's folder name.")
@click.option("--gpus", help="all (default), none, or a list of indices or UUIDs.")
@click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="For the trainer; NAME takes the value from here.")
@click.option("--config", "config_files", multiple=True, type=click.Path(), help="Supervisor's configuration.")
@click.option("--train", type=click.Path(), help="The bundled trainer's configuration, a TOML file on this machine.")
@click.option("--set", "settings_given", multiple=True, metavar="KEY=VALUE", help="One key of the trainer's.")
@click.option("--python", metavar="PATH", help="The trainer's Python on the host; default: searched for.")
@click.option("--policy", type=click.Choice(("auto", "careful", "observe")), help="What may be done without you.")
@click.option("--resume", metavar="auto|none|PATH", help="Which checkpoint to begin from.")
@click.option("--replace", is_flag=True, help="End a live run of this workspace first.")
@click.option("--no-tmux", is_flag=True, help="Without a tmux session; `attach` then shows nothing.")
@options.yes_option
@options.dry_run_option
@options.json_option
def command(
    target: str,
    command_line: tuple[str, ...],
    detach: bool,
    wait_for_end: bool,
    config_files: tuple[str, ...],
    settings_given: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Start a run on TARGET and follow it to its first step or its first verdict.

    TARGET is [user@]host[:port]:/absolute/workspace, or local:/absolute/workspace for this machine without SSH. Without
    a COMMAND the bundled DFlash trainer runs on all GPUs. A daemon is brought up in the background if none runs.

    Exit status: 0 training; 5 a check failed and nothing was started; 6 refused (a live run, a busy or stale GPU);
    101 a bad verdict came first, and it is not the end yet; the run's own status when it has ended.
    """
    from dflash_supervise.cli import runs, session, start_request

    if detach and wait_for_end:
        raise click.UsageError("--detach and --wait exclude each other")
    settings = session.settings(*config_files)
    wanted = start_request.StartOptions(target=target, command=command_line, set=settings_given, detach=detach, **given)
    request = start_request.current(wanted, settings)
    if dry_run:
        return _dry_run(request, as_json)
    if wanted.replace:
        _confirm_replace(target, yes)
    with session.connect_or_start(settings) as api:
        run = _launch(api, target, request, yes=yes)
        name = runs.handle(run)
        with session.detaching(f"the run goes on; come back with: {words.command('logs', '-f', name)}"):
            look = words.command("logs", "-f", name) if request.get("no_tmux") else words.command("attach", name)
            say.talk(f"run {run['name']} ({run['id']}) is launched; look in with: {look}")
            if not as_json:
                say.data(str(run["id"]))
            if not detach:
                run = _follow(api, str(run["id"]), wait_for_end)
        code = exits.DONE if detach else _tell(run)
    if as_json:
        say.document({"schema": 1, "run": run})
    return code


def _launch(api: Api, target: str, request: dict[str, Any], *, yes: bool) -> dict[str, Any]:
    """The operation from preflight to launch; its lines are shown as they come."""
    from dflash_supervise.cli import session, watch
    from dflash_supervise.cli.trust import trusting

    def act() -> dict[str, Any]:
        return watch.operation(api, str(api.post("/runs", request)["operation"]), say.StatusLine())

    with session.detaching(f"the start goes on in the daemon; see: {words.command('ps')}"):
        done = trusting(api, target, act, yes=yes)
        return clean_run(api.get(f"/runs/{done['run_id']}"))


def clean_run(run: dict[str, Any]) -> dict[str, Any]:
    return dict(clean.document(run))


def _follow(api: Api, run_id: str, wait_for_end: bool) -> dict[str, Any]:
    from dflash_supervise.cli import watch

    def enough(run: dict[str, Any]) -> bool:
        return not wait_for_end and (watch.has_first_step(run) or watch.has_bad_verdict(run))

    return watch.until(api, run_id, enough, say.StatusLine())


def _tell(run: dict[str, Any]) -> int:
    """The last words, and the exit status."""
    from dflash_supervise.cli import runs, watch

    name = runs.handle(run)
    if run.get("final"):
        say.talk(f"{name} has ended: {run.get('verdict')}; {words.command('why', name)}")
        return runs.exit_status(run)
    if run.get("verdict") in marks.HEALTHY:
        say.talk(f"{name} trains: {watch.progress(run)}")
        say.talk(f"see: {words.command('status', name)}, {words.command('logs', '-f', name)}, {words.command('open')}")
        return exits.DONE
    say.talk(f"see: {words.command('why', name)}")
    if run.get("verdict") == "stale_process" and not run.get("attempt"):
        say.talk(f"nothing was launched; it is when the GPUs are free, or give it up: {words.command('stop', name)}")
        return exits.REFUSED
    return exits.NOT_FINISHED


def _confirm_replace(target: str, yes: bool) -> None:
    from dflash_supervise.cli import goals

    goals.confirm(
        "Replace it?",
        yes=yes,
        shown=[f"--replace ends the live run of {target}, if there is one, before this one starts"],
    )


def _dry_run(request: dict[str, Any], as_json: bool) -> int:
    """The request as it would be sent; nothing is contacted."""
    from dflash_supervise.cli import start_request

    if as_json:
        shown = {**request, "env": dict.fromkeys(request["env"], "...")} if request.get("env") else request
        say.document({"schema": 1, "dry_run": True, "request": shown})
        return exits.DONE
    for line in start_request.described(request):
        say.data(clean.line(line))
    say.talk("nothing was contacted and nothing was started; `doctor TARGET` checks the host")
    return exits.DONE
