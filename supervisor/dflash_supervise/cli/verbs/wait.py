"""``wait``: for scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from dflash_supervise.cli import exits, options, say, words

_STEP = re.compile(r"step=(\d+)")


def event_name(text: str) -> str:
    """``first-step``, ``done``, ``incident`` or ``step=N``."""
    if text in ("first-step", "done", "incident") or _STEP.fullmatch(text):
        return text
    raise click.BadParameter(f"{text!r} is no event; use first-step, done, incident or step=N")


@click.command("wait")
@options.run_argument
@click.option(
    "--for",
    "event",
    type=event_name,
    default="done",
    metavar="EVENT",
    help="first-step, done (default), incident or step=N.",
)
@click.option("--timeout", type=options.duration, help="Give up after this long (exit 124).")
@options.json_option
def command(run: str, event: str, timeout: float | None, as_json: bool) -> int:
    """Wait for an event of a run: first-step, done, incident or step=N.

    Exit status: 0 when it came; 124 after the timeout; when the run ended first, its own (100, 103, 104, 105), or 3
    where it completed and the event can come no more.
    """
    from dflash_supervise.cli import runs, session, watch

    with session.connect() as api:
        found = runs.find(api, run)
        name = runs.handle(found)
        with session.detaching(f"the run goes on; come back with: {words.command('wait', name, '--for', event)}"):
            now = watch.until(api, str(found["id"]), condition(event), say.StatusLine(), timeout_s=timeout)
    if as_json:
        say.document({"schema": 1, "run": now})
    if event != "done" and condition(event)(now):
        return exits.DONE
    code = runs.exit_status(now)
    if event == "done" or code != exits.DONE:
        return code
    at = "" if now.get("step") is None else f" at step {now['step']}"
    say.talk(f"{name} completed{at} without {event}, which can come no more")
    return exits.NOT_RUNNING


def condition(event: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a look at a run shows the event."""
    from dflash_supervise.cli import watch

    if match := _STEP.fullmatch(event):
        wanted = int(match[1])
        return lambda run: run.get("step") is not None and int(run["step"]) >= wanted
    if event == "first-step":
        return watch.has_first_step
    if event == "incident":
        return lambda run: int(run.get("open_incidents") or 0) > 0
    return lambda run: bool(run.get("final"))
