"""``open``: the dashboard."""

from __future__ import annotations

import click

from dflash_supervise.cli import exits, options, say, words


@click.command("open")
@options.optional_run_argument
@click.option("--print", "only_print", is_flag=True, help="Print the link and open no browser.")
@options.json_option
def command(run: str | None, only_print: bool, as_json: bool) -> int:
    """The dashboard in a browser, by a link that logs in once. With RUN, that run's page afterwards."""
    from dflash_supervise.cli import runs, session

    with session.connect() as api:
        page = f"/runs/{runs.find(api, run)['id']}" if run else "/"
        answer = api.post("/login")
        link = api.url + str(answer["path"])
        expires_s = float(answer.get("expires_s") or 60)
        url = api.url
    if as_json:
        say.document({"schema": 1, "url": url + page, "login": link, "expires_s": expires_s})
        return exits.DONE
    say.data(link)
    if run:
        say.talk(f"then: {url}{page}")
    say.talk(f"the link works once, for {words.duration(expires_s)}")
    if not only_print and say.stdout_is_terminal():
        click.launch(link)
    return exits.DONE
