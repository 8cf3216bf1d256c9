"""``demo``: the main job on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from dflash_supervise.cli import options


@click.command("demo")
@click.option("--keep", is_flag=True, help="Leave daemon, dashboard and files; says how to end them.")
@click.option(
    "--port",
    type=options.PORT,
    help="Port of the dashboard; default DFLASH_SUPERVISE_DAEMON_PORT, else 8000, or any if that is taken.",
)
@click.option("--limit", type=options.duration, default="290", help="Give up after this long; default 290 s.")
@click.option("--examples", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder of demo.toml.")
@options.json_option
def command(keep: bool, port: int | None, limit: float, examples: Path | None, as_json: bool) -> int:
    """The main job on this machine, without GPU and SSH: a daemon with its dashboard, a small target and its drafter
    trained on the CPU, one crash and one hang injected, both seen, named and cured.

    It uses folders of its own and leaves nothing. Exit status 1 says what of this did not happen.
    """
    from dflash_supervise.demo.play import Options, play

    return play(Options(keep=keep, port=port, limit_s=limit, as_json=as_json, examples=examples))
