"""From what a person types to a run: its id, its name, or an unmistakable beginning of either."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from dflash_supervise.cli import exits, words
from dflash_supervise.cli.api import Api, Json
from dflash_supervise.cli.errors import CliError


def all_runs(api: Api) -> list[Json]:
    """Every run that the daemon knows, newest first."""
    runs = api.get("/runs").get("runs", [])
    return sorted(runs, key=lambda run: str(run.get("created_at") or ""), reverse=True)


def find(api: Api, wanted: str) -> Json:
    """The run that is meant; of several runs with one name the newest.

    Raises:
        CliError: none or several are meant (exit 102), with the nearest names.
    """
    runs = all_runs(api)
    exact = [run for run in runs if wanted in (run["id"], run["name"])]
    if exact:
        return exact[0]
    begun = [run for run in runs if run["id"].startswith(wanted) or run["name"].startswith(wanted)]
    if len({run["name"] for run in begun}) == 1:
        return begun[0]
    if begun:
        raise _no_such_run(f"{wanted!r} is the beginning of several runs", (run["name"] for run in begun))
    near = difflib.get_close_matches(wanted, _names(runs), n=3, cutoff=0.6)
    raise _no_such_run(f"no run is called {wanted!r}", near)


def _names(runs: Iterable[Json]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in (run["name"], run["id"])))


def _no_such_run(message: str, near: Iterable[str]) -> CliError:
    names = list(dict.fromkeys(near))
    fix = "did you mean " + " or ".join(names) + "?" if names else f"list the runs: {words.command('ps')}"
    return CliError(message, fix=fix, exit_code=exits.NO_SUCH_RUN, code="no_such_run")


def exit_status(run: Json) -> int:
    """What ``status`` exits with: one look at a run, in the codes that scripts test."""
    from dflash_supervise.cli import marks

    final: Any = run.get("exit_status")
    if run.get("final") and final is not None:
        return int(final)
    if run.get("reachable") is False or run.get("verdict") == "host_unreachable":
        return exits.UNKNOWN
    if run.get("verdict") in marks.HEALTHY:
        return exits.DONE
    return exits.NOT_RUNNING
