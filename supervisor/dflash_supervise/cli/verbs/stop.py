"""``stop``: end a run."""

from __future__ import annotations

import click

from dflash_supervise.cli import exits, options, say, words


@click.command("stop")
@options.run_argument
@click.option("--no-wait", is_flag=True, help="Return as soon as the host has taken it.")
@click.option("--timeout", type=options.duration, default="5m", show_default=True, help="Wait at most so long.")
@options.yes_option
@options.dry_run_option
@options.json_option
def command(run: str, no_wait: bool, timeout: float, yes: bool, dry_run: bool, as_json: bool) -> int:
    """End a run: the attempt is asked, then made to end, and the GPUs are proven free.

    Exit status 4: the host has not taken it; the goal stays pending and is delivered when the host answers.
    """
    from dflash_supervise.cli import clean, goals, runs, session, watch

    goal = {"want": "stop"}
    with session.connect() as api:
        found = runs.find(api, run)
        name = runs.handle(found)
        if found.get("final"):
            goals.show(as_json, found, f"{name} has ended already: {found.get('verdict')}")
            return exits.DONE
        theirs = goals.processes(api, found, yes=yes) if found.get("kind") == "adopted" else []
        if dry_run:
            return goals.dry(as_json, found, goal, f"stop {name}", theirs)
        goals.confirm(f"Stop {name}?", yes=yes, shown=clean.document([*goals.losses(found), *theirs]))
        answer = goals.change(api, found, goal)
        with session.detaching(f"the stop goes on without us; see: {words.command('status', name)}"):
            ended = goals.acknowledged(api, found, answer)
            if not no_wait:
                line = say.StatusLine()
                ended = watch.until(api, str(found["id"]), lambda now: False, line, timeout_s=timeout)
    how = "is ending" if no_wait else f"has ended: {ended.get('verdict')}"
    goals.show(as_json, ended, f"{name} {how}")
    return exits.DONE
