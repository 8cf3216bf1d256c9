"""``why``: the verdict and everything it rests on."""

from __future__ import annotations

import click

from dflash_supervise.cli import clean, exits, options, say


@click.command("why")
@options.run_argument
@options.json_option
def command(run: str, as_json: bool) -> int:
    """The verdict, its evidence with ages, the rules that fired or nearly fired with their margins, the open
    incidents, and what happens next and when."""
    from dflash_supervise.cli import runs, session, why_text

    with session.connect() as api:
        answer = api.get(f"/runs/{runs.find(api, run)['id']}/why")
    if as_json:
        say.document({"schema": 1, **answer})
    else:
        say.data("\n".join(why_text.render(clean.document(answer), say.stdout_style())))
    return exits.DONE
