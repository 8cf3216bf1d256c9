"""``events``: the timeline."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Any

import click

from dflash_supervise.cli import clean, events_text, exits, options, say
from dflash_supervise.wire import STORY_KINDS

if TYPE_CHECKING:
    from dflash_supervise.cli.api import Api

_POLL_S = 1.0
_PAGE = 500


@click.command("events")
@options.optional_run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as things happen, until Ctrl-C.")
@options.json_option
def command(run: str | None, follow: bool, as_json: bool) -> int:
    """What happened and what was done about it, of one run or of all."""
    from dflash_supervise.cli import runs, session

    after: dict[str, int] = {}
    with session.connect() as api, session.detaching("watched no longer; every run goes on"):
        while True:
            chosen = [runs.find(api, run)] if run else runs.all_runs(api)
            found = [(one, record) for one in chosen for record in _new(api, str(one["id"]), after)]
            found.sort(key=lambda pair: str(pair[1].get("at") or ""))
            for one, record in found:
                if as_json:
                    say.document_line({"schema": 1, "run": one["id"], **record})
                else:
                    name = "" if run else runs.label(clean.document(one))
                    say.data(events_text.line(clean.document(record), say.stdout_style(), run=name))
            if not follow:
                return exits.DONE
            sleep(_POLL_S)


def _new(api: Api, run_id: str, after: dict[str, int]) -> list[dict[str, Any]]:
    """Records after the last row that was seen of this run; rows only grow."""
    fresh: list[dict[str, Any]] = []
    while True:
        page = api.get(
            f"/runs/{run_id}/records", after=after.get(run_id, 0), kind=",".join(STORY_KINDS), limit=_PAGE
        ).get("records", [])
        fresh += page
        if page:
            after[run_id] = max(int(record["row"]) for record in page)
        if len(page) < _PAGE:
            return fresh
