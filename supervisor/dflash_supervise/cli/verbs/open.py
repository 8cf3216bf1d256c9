"""``open``: the dashboard."""

from __future__ import annotations

import click

from dflash_supervise.cli import exits, options, say, words


@click.command("open")
@options.optional_run_argument
@click.option("--print", "only_print", is_flag=True, help="Print the link and open no browser.")
@options.json_option
def command(run: str | None, only_print: bool, as_json: bool) -> int:
    """The dashboard in a browser, by a link that logs in once. With RUN, it leads to that run's page."""
    from dflash_supervise.cli import runs, session

    with session.connect() as api:
        wanted = str(runs.find(api, run)["id"]) if run else None
        answer = api.post("/login", {"run": wanted} if wanted else None)
        link = api.url + str(answer["path"])
        expires_s = float(answer.get("expires_s") or 60)
        url = api.url + (f"/runs/{wanted}" if wanted else "/")
    if as_json:
        say.document({"schema": 1, "url": url, "login": link, "expires_s": expires_s})
        return exits.DONE
    say.data(link)
    say.talk(f"the link works once, for {words.duration(expires_s)}")
    if not only_print and say.stdout_is_terminal():
        click.launch(link)
    return exits.DONE
