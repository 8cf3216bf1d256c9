"""``status``: one run in a few lines, and in the exit status."""

from __future__ import annotations

import click

from dflash_supervise.cli import clean, exits, options, say


@click.command("status")
@options.optional_run_argument
@options.json_option
def command(run: str | None, as_json: bool) -> int:
    """One run in a few lines; without RUN, the table of `ps -a`.

    Exit status: 0 starting, running or completed; 3 no healthy attempt at the moment; 4 the host does not answer;
    100, 103, 104 or 105 when the run has ended.
    """
    from dflash_supervise.cli import runs, session, status_text

    with session.connect() as api:
        if run is None:
            found = runs.all_runs(api)
            if as_json:
                say.document({"schema": 1, "runs": found})
            else:
                status_text.show(clean.document(found))
            return exits.DONE
        one = runs.find(api, run)
    if as_json:
        say.document({"schema": 1, "run": one})
    else:
        say.data("\n".join(status_text.card(clean.document(one), say.stdout_style())))
    return runs.exit_status(one)
