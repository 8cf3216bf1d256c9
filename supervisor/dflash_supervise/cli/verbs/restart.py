"""``restart``: the current attempt ends and the next one starts."""

from __future__ import annotations

import click

from dflash_supervise.cli import exits, options, say, words


@click.command("restart")
@options.run_argument
@click.option("--wait", "wait_for_step", is_flag=True, help="Wait for the first step of the next attempt.")
@click.option("--timeout", type=options.duration, default="30m", show_default=True, help="For --wait.")
@options.yes_option
@options.dry_run_option
@options.json_option
def command(run: str, wait_for_step: bool, timeout: float, yes: bool, dry_run: bool, as_json: bool) -> int:
    """End the current attempt and start the next one from the last complete checkpoint; also after a run has failed,
    was given up or was stopped.

    The next attempt starts only when the GPUs are proven free. A hold ends with it. Exit status 6: there is nothing to
    start again, because the run is complete or was started by somebody else.
    """
    from dflash_supervise.cli import clean, goals, runs, session, watch

    with session.connect() as api:
        found = runs.find(api, run)
        name, before = runs.handle(found), int(found.get("attempt") or 0)
        goal = {"want": "run", "end_attempt": "current"}
        if dry_run:
            return goals.dry(as_json, found, goal, f"restart {name}")
        held = (found.get("goal") or {}).get("want") == "hold"
        shown = goals.losses(found) + (["it is on hold; the restart ends the hold"] if held else [])
        goals.confirm(f"Restart {name}?", yes=yes, shown=clean.document(shown))
        answer = goals.change(api, found, goal)
        with session.detaching(f"the restart goes on without us; see: {words.command('status', name)}"):
            now = goals.acknowledged(api, found, answer)
            if wait_for_step:
                now = watch.until(
                    api,
                    str(found["id"]),
                    lambda look: int(look.get("attempt") or 0) > before and watch.has_first_step(look),
                    say.StatusLine(),
                    timeout_s=timeout,
                )
    goals.show(as_json, now, f"{name}: the host has taken it; follow with: {words.command('logs', '-f', name)}")
    return runs.exit_status(now) if wait_for_step else exits.DONE
