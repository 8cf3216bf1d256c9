"""``release``: end a hold."""

from __future__ import annotations

import click

from dflash_supervise.cli import exits, options


@click.command("release")
@options.run_argument
@options.dry_run_option
@options.json_option
def command(run: str, dry_run: bool, as_json: bool) -> int:
    """End a hold: verdicts lead to actions again. No action rests on what was seen before the release."""
    from dflash_supervise.cli import goals, runs, session

    goal = {"want": "run"}
    with session.connect() as api:
        found = runs.find(api, run)
        name = runs.handle(found)
        if (found.get("goal") or {}).get("want") != "hold":
            goals.show(as_json, found, f"{name} is not held")
            return exits.DONE
        if dry_run:
            return goals.dry(as_json, found, goal, f"release {name}")
        answer = goals.change(api, found, goal)
        now = goals.acknowledged(api, found, answer)
    goals.show(as_json, now, f"{name} is no longer held")
    return exits.DONE
