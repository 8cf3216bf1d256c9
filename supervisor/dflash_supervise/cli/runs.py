"""From what a person types to a run: its id, its name, or an unmistakable beginning of either."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from dflash_supervise.cli import exits, words
from dflash_supervise.cli.api import Api, Json
from dflash_supervise.cli.errors import CliError

_COLUMN = 18
_NEAR = 5  # names that a refusal offers at most


def all_runs(api: Api) -> list[Json]:
    """Every run that the daemon knows, newest first."""
    runs = api.get("/runs").get("runs", [])
    return sorted(runs, key=lambda run: str(run.get("created_at") or ""), reverse=True)


def handle(run: Mapping[str, Any]) -> str:
    """The word by which ``find`` gives this run and no other: its name as long as that is unique, else its id.

    The daemon says which it is. One that does not say so knows nothing of it, and an id is always right.
    """
    return str(run["name"] if run.get("name_unique") else run["id"])


def label(run: Mapping[str, Any]) -> str:
    """The same for a column: a long name may be cut there, an id never."""
    return words.cut(str(run["name"]), _COLUMN) if run.get("name_unique") else str(run["id"])


def find(api: Api, wanted: str) -> Json:
    """The run that is meant: by its id, else by its name; of several runs with one name the newest.

    Raises:
        CliError: none or several are meant (exit 102), with the nearest names.
    """
    runs = all_runs(api)
    for key in ("id", "name"):
        exact = [run for run in runs if run[key] == wanted]
        if exact:
            return exact[0]
    for key in ("name", "id"):
        begun = [run for run in runs if run[key].startswith(wanted)]
        if len({run[key] for run in begun}) == 1:
            return begun[0]
        if begun:
            raise _no_such_run(f"{wanted!r} is the beginning of several runs", begun)
    words_known = dict.fromkeys(word for run in runs for word in (run["name"], run["id"]))
    near = difflib.get_close_matches(wanted, words_known, n=3, cutoff=0.6)
    raise _no_such_run(f"no run is called {wanted!r}", [run for run in runs if {run["name"], run["id"]} & {*near}])


def _no_such_run(message: str, near: Iterable[Json]) -> CliError:
    names = list(dict.fromkeys(handle(run) for run in near))[:_NEAR]
    fix = "did you mean " + " or ".join(names) + "?" if names else f"list the runs: {words.command('ps', '-a')}"
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
