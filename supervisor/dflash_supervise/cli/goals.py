"""Changing what is wanted: ask, tell the daemon, and see whether the host has taken it."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from dflash_supervise.cli import clean, exits, say, words
from dflash_supervise.cli.errors import CliError

if TYPE_CHECKING:
    from dflash_supervise.cli.api import Api

_POLL_S = 0.3
_ACKNOWLEDGE_S = 15.0  # a host that answers takes a goal within a tick


def confirm(question: str, *, yes: bool, shown: list[str]) -> None:
    """Ask on a terminal, with what is lost shown first.

    Raises:
        CliError: nobody can be asked and --yes was not given (exit 2), or the answer was no (exit 6).
    """
    for text in shown:
        say.talk(text)
    if yes:
        return
    if not (say.stdin_is_terminal() and say.stderr_is_terminal()):
        raise CliError(
            "there is no terminal to ask on", fix="say --yes to go ahead", exit_code=exits.USAGE, code="needs_yes"
        )
    import click

    if not click.confirm(question, default=False, err=True):
        raise CliError("nothing was changed", exit_code=exits.REFUSED, code="declined")


def losses(run: dict[str, Any]) -> list[str]:
    """What ending the attempt costs, as far as it is known."""
    if run.get("final"):
        return []
    step, kept = run.get("step"), run.get("checkpoint_step")
    lines = [f"{run['name']} on {run.get('host')}: {run.get('sentence') or run.get('verdict')}"]
    if step is None:
        lines.append("its step is not known, nor what ending it would lose")
    elif kept is None:
        lines.append(f"it is at step {step} and no complete checkpoint is known")
    else:
        lines.append(f"it is at step {step}; the last complete checkpoint is at {kept}, {max(step - kept, 0)} behind")
    if run.get("kind") == "bundled":
        lines.append("the bundled trainer saves a checkpoint when it is asked to end")
    return lines


def processes(api: Api, run: dict[str, Any]) -> list[str]:
    """Who would get a signal: the processes of an adopted run, which somebody else started."""
    found = api.get(f"/runs/{run['id']}/records", kind="observation", limit=1, newest=True).get("records") or [{}]
    reading = (found[0].get("obs") or {}).get("processes") or {}
    members = [one for one in reading.get("members") or [] if one.get("state") not in ("Z", "X")]
    if not members:
        return ["its processes are not known"]
    return ["these processes, started by somebody else, would be ended:"] + [
        f"  pid {one.get('pid')}  {one.get('comm')}" for one in members
    ]


def change(api: Api, run: dict[str, Any], goal: dict[str, Any]) -> dict[str, Any]:
    """Hand the goal to the daemon. Whoever calls has asked the person already."""
    return api.post(f"/runs/{run['id']}/goal", {**goal, "yes": True})


def acknowledged(api: Api, run: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The run once its host has taken this generation of the goal.

    Raises:
        CliError: it has not within the time (exit 4); the goal stays and is delivered later.
    """
    generation = int(answer.get("generation") or 0)
    deadline = monotonic() + _ACKNOWLEDGE_S
    while True:
        now = api.get(f"/runs/{run['id']}")
        goal = now.get("goal") or {}
        if goal.get("acknowledged") and int(goal.get("generation") or 0) >= generation:
            return now
        if monotonic() > deadline:
            raise CliError(
                f"{run['host']} has not taken it yet; it stays pending and is delivered when the host answers",
                fix=f"see how it stands: {words.command('status', str(run['name']))}",
                exit_code=exits.UNKNOWN,
                code="undelivered",
            )
        sleep(_POLL_S)


def show(as_json: bool, run: dict[str, Any], text: str) -> None:
    """The result: the run as JSON, or a line of talk."""
    if as_json:
        say.document({"schema": 1, "run": run})
    else:
        say.talk(text)


def dry(as_json: bool, run: dict[str, Any], goal: dict[str, Any], text: str) -> int:
    if as_json:
        say.document({"schema": 1, "dry_run": True, "run": run["id"], "goal": goal})
    else:
        for line in clean.document(losses(run)):
            say.talk(line)
        say.talk(f"would {text}; nothing was changed")
    return exits.DONE
