"""Changing what is wanted: ask, tell the daemon, and see whether the host has taken it."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from dflash_supervise.cli import clean, exits, runs, say, words
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
    lines = [f"{runs.handle(run)} on {run.get('host')}: {run.get('sentence') or run.get('verdict')}"]
    if not run.get("attempt"):
        return [*lines, "no attempt was launched yet, so no step is lost"]
    if run.get("attempt_ended"):
        return [*lines, _lost_already(run)]
    lines.append(_lost(run))
    if run.get("reachable") is False:
        lines.append(f"that is {words.duration(run.get('news_age_s'))} old: the host does not answer")
    if run.get("kind") == "bundled":
        lines.append("the bundled trainer saves a checkpoint when it is asked to end")
    return lines


def _lost_already(run: dict[str, Any]) -> str:
    step, kept = run.get("step"), run.get("checkpoint_step")
    at = "" if step is None else f" at step {step}"
    saved = "no complete checkpoint is known" if kept is None else f"the last complete checkpoint is at {kept}"
    return f"attempt {run['attempt']} has ended already{at}, so no step is lost by this; {saved}"


def _lost(run: dict[str, Any]) -> str:
    step, kept = run.get("step"), run.get("checkpoint_step")
    if step is None:
        begun = run.get("verdict") == "starting" and run.get("kind") != "adopted"
        what = "it has made no step yet that we know of" if begun else "its step is not known, nor what ending it loses"
        return what if kept is None else f"{what}; the last complete checkpoint is at {kept}"
    if kept is None:
        return f"it is at step {step} and no complete checkpoint is known"
    if kept > step:
        return f"it is at step {step}; the last complete checkpoint is at {kept}, from an earlier attempt"
    return f"it is at step {step}; the last complete checkpoint is at {kept}, {step - kept} behind"


def processes(api: Api, run: dict[str, Any], *, yes: bool) -> list[str]:
    """Who gets a signal: the processes of an adopted run, which somebody else started."""
    found = api.get(f"/runs/{run['id']}/records", kind="observation", limit=1, newest=True).get("records") or [{}]
    reading = (found[0].get("obs") or {}).get("processes") or {}
    members = [one for one in reading.get("members") or [] if one.get("state") not in ("Z", "X")]
    if not members:
        return ["its processes are not known"]
    return [f"these processes, started by somebody else, {'will' if yes else 'would'} be ended:"] + [
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
    _refuse_superseded(answer.get("superseded_by"))
    deadline = monotonic() + _ACKNOWLEDGE_S
    while True:
        now = api.get(f"/runs/{run['id']}")
        goal = now.get("goal") or {}
        newest = int(goal.get("generation") or 0)
        if goal.get("acknowledged") and (newest == generation or answer.get("acknowledged")):
            return now
        if newest > generation:
            _refuse_superseded(newest)
        if monotonic() > deadline:
            raise CliError(
                f"{run['host']} has not taken it yet; it stays pending and is delivered when the host answers",
                fix=f"see how it stands: {words.command('status', runs.handle(run))}",
                exit_code=exits.UNKNOWN,
                code="undelivered",
            )
        sleep(_POLL_S)


def _refuse_superseded(newer: int | None) -> None:
    if newer is not None:
        raise CliError(
            f"a newer goal (generation {newer}) replaced it before the host had seen it; it was never in force",
            exit_code=exits.REFUSED,
            code="superseded",
        )


def show(as_json: bool, run: dict[str, Any], text: str) -> None:
    """The result: the run as JSON, or a line of talk."""
    if as_json:
        say.document({"schema": 1, "run": run})
    else:
        say.talk(text)


def dry(as_json: bool, run: dict[str, Any], goal: dict[str, Any], text: str, shown: Sequence[str] = ()) -> int:
    """What would be done, with what it costs: only an attempt that ends costs anything."""
    if as_json:
        say.document({"schema": 1, "dry_run": True, "run": run["id"], "goal": goal})
    else:
        ends = goal.get("want") == "stop" or goal.get("end_attempt") is not None
        for line in clean.document([*(losses(run) if ends else []), *shown]):
            say.talk(line)
        say.talk(f"would {text}; nothing was changed")
    return exits.DONE
