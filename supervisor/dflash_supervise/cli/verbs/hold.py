"""``hold``: watch, act on nothing."""

from __future__ import annotations

import click

from dflash_supervise.cli import exits, options, words


@click.command("hold")
@options.run_argument
@click.option("--for", "for_s", type=options.duration, help="End by itself after this long, such as 2h.")
@options.dry_run_option
@options.json_option
def command(run: str, for_s: float | None, dry_run: bool, as_json: bool) -> int:
    """Go on watching a run and telling verdicts, but stop, restart and launch nothing. `release` ends it."""
    from dflash_supervise.cli import goals, runs, session

    goal = {"want": "hold", "hold_for_s": for_s}
    with session.connect() as api:
        found = runs.find(api, run)
        name = runs.handle(found)
        length = f" for {words.duration(for_s)}" if for_s is not None else " until it is released"
        if dry_run:
            return goals.dry(as_json, found, goal, f"hold {name}{length}")
        answer = goals.change(api, found, goal)
        now = goals.acknowledged(api, found, answer)
    goals.show(as_json, now, f"{name} is held{length}; end it with: {words.command('release', name)}")
    return exits.DONE
