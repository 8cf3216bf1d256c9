"""``ps``: the runs."""

from __future__ import annotations

from time import sleep
from typing import Any

import click

from dflash_supervise.cli import clean, exits, options, say

_RECENT_S = 86400.0
_REFRESH_S = 2.0


@click.command("ps")
@click.option("-a", "--all", "everything", is_flag=True, help="Also runs that ended more than a day ago.")
@click.option("-w", "--watch", is_flag=True, help="Show it anew every two seconds until Ctrl-C.")
@options.json_option
def command(everything: bool, watch: bool, as_json: bool) -> int:
    """The runs: host, verdict, step, speed, GPUs, attempt, age of the news.

    The strip has a cell a GPU: full block working, half starved, shaded spinning, low idle, dot off, ? unknown.
    """
    from dflash_supervise.cli import runs, session, status_text

    with session.connect() as api:
        while True:
            known = runs.all_runs(api)
            found = [run for run in known if everything or _is_recent(run)]
            if as_json and watch:
                say.document_line({"schema": 1, "runs": found})
            elif as_json:
                say.document({"schema": 1, "runs": found})
            else:
                status_text.show(clean.document(found), clear=watch, hidden=len(known) - len(found))
            if not watch:
                return exits.DONE
            with session.detaching("watched no longer; every run goes on"):
                sleep(_REFRESH_S)


def _is_recent(run: dict[str, Any]) -> bool:
    if not run.get("final") or run.get("open_incidents"):
        return True
    age_s = run.get("news_age_s")
    return age_s is None or float(age_s) < _RECENT_S
