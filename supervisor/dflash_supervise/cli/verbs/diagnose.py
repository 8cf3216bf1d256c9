"""``diagnose``: what a log says about its end, on this machine alone: no daemon, no host."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from dflash_supervise.cli import clean, exits, options, say
from dflash_supervise.cli.errors import CliError

CHUNK_BYTES = 1 << 20
MOST_CONTEXT_BYTES = 8 << 20


@click.command("diagnose")
@click.argument("log", type=click.Path())
@click.option("--exit-code", type=int, metavar="N", help="The exit code of the command that wrote the log.")
@click.option("--signal", "signal_text", metavar="N|NAME", help="The signal that ended it, or its first rank to fail.")
@click.option("--context", "context_file", type=click.Path(), metavar="FILE", help="What was seen beside it, as JSON.")
@options.json_option
def command(log: str, exit_code: int | None, signal_text: str | None, context_file: str | None, as_json: bool) -> int:
    """What a LOG tells: verdict, cause, the line that says so, why, and what to do. LOG may be - for stdin.

    The context file is an object with any of gpu (a row for each GPU), observed (ages, states, kernel log lines),
    log_kind, exit_code and signal; an option given here wins over it.
    """
    from dflash_supervise.core.context import read_signal
    from dflash_supervise.core.diagnose import SCHEMA, diagnose

    context = _context(context_file) if context_file is not None else {}
    try:
        signal = read_signal(signal_text if signal_text is not None else context.get("signal"))
    except ValueError as error:
        raise CliError(str(error), exit_code=exits.USAGE, code="usage") from error
    code = exit_code if exit_code is not None else context.get("exit_code")
    try:
        found = diagnose(
            _chunks(log),
            exit_code=code,
            signal=signal,
            log_kind=str(context.get("log_kind") or "train_log"),
            gpu=context.get("gpu") or (),
            observed=context.get("observed") or {},
        )
    except OSError as error:
        raise _unreadable("log", log, error) from error
    from dflash_supervise import wire

    body = wire.to_json(found)
    if as_json:
        say.document({"schema": SCHEMA, **body})
        return exits.DONE
    from dflash_supervise.cli import diagnose_text

    say.data("\n".join(diagnose_text.render(clean.document(body), say.stdout_style())))
    return exits.DONE


def _chunks(log: str) -> Iterator[bytes]:
    if log == "-":
        while chunk := sys.stdin.buffer.read(CHUNK_BYTES):
            yield chunk
        return
    with open(log, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _context(path: str) -> Mapping[str, Any]:
    import json

    try:
        with open(path, "rb") as file:
            data = file.read(MOST_CONTEXT_BYTES + 1)
    except OSError as error:
        raise _unreadable("context", path, error) from error
    if len(data) > MOST_CONTEXT_BYTES:
        raise CliError(f"{path} is larger than {MOST_CONTEXT_BYTES >> 20} MiB", exit_code=exits.USAGE, code="usage")
    try:
        context = json.loads(data)
    except ValueError as error:
        raise CliError(f"{path} is no JSON: {error}", exit_code=exits.USAGE, code="usage") from error
    wrong = _wrong(context)
    if wrong:
        raise CliError(f"{path}: {wrong}", fix="see diagnose --help", exit_code=exits.USAGE, code="usage")
    return dict(context)


def _wrong(context: Any) -> str:
    """What keeps a context from being read; its values are looked at one by one later."""
    if not isinstance(context, dict):
        return "it must be an object"
    if not isinstance(context.get("observed") or {}, dict):
        return "observed must be an object"
    rows = context.get("gpu") or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return "gpu must be a list of objects"
    code = context.get("exit_code")
    if code is not None and (isinstance(code, bool) or not isinstance(code, int)):
        return "exit_code must be a whole number"
    return ""


def _unreadable(what: str, path: str, error: OSError) -> CliError:
    text = f"the {what} {path} cannot be read: {error.strerror or error}"
    return CliError(text, fix="give the path of a file you may read", exit_code=exits.USAGE, code="unreadable")
