"""``logs``: what an attempt wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dflash_supervise.cli import clean, exits, options, runs, say, words
from dflash_supervise.cli.errors import CliError

if TYPE_CHECKING:
    from dflash_supervise.cli.api import Api

_CHUNK_BYTES = 1 << 18
_POLL_S = 0.5
_BEYOND = 1 << 62  # no log is so long: the answer is its size alone
_LISTED = 9  # attempts that a refusal lists one by one


@click.command("logs")
@options.run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows, also over restarts, until the run ends.")
@click.option("-n", "--tail", type=options.whole(0, 10000), help="Only so many last lines; default 200, -f 20.")
@click.option("--attempt", type=options.whole(1), help="This attempt instead of the newest.")
@click.option("--raw", is_flag=True, help="As it stands, control sequences included; only for a log you trust.")
@options.json_option
def command(run: str, follow: bool, tail: int | None, attempt: int | None, raw: bool, as_json: bool) -> int:
    """The log of a run's newest attempt.

    Control sequences in a log can fool a terminal, so all but plain colours are removed; --raw keeps them.

    Exit status without -f: 0; 2 no such attempt; where there is no log, 3 after the attempt and 4 before anybody can
    say. With -f: the run's own, or 101 when watching ended first.
    """
    from dflash_supervise.cli import session

    lines = tail if tail is not None else (20 if follow else 200)
    with session.connect() as api:
        found = runs.find(api, run)
        _check_attempt(found, attempt)
        back = f"the run goes on; come back with: {words.command('logs', '-f', runs.handle(found))}"
        with session.detaching(back):
            printer = _Printer(raw=raw, as_json=as_json, run_id=str(found["id"]))
            which = {"tail": lines} if lines else {"offset": _BEYOND, "limit": 1}
            shown = api.get(f"/runs/{found['id']}/log", attempt=attempt, **which)
            told = clean.document(found)
            if not shown.get("size") and not follow:
                raise _nothing(told, attempt)
            if not shown.get("size"):
                say.talk(_nothing(told, attempt).message)
            elif attempt is None and int(shown["attempt"]) < int(found.get("attempt") or 0):
                say.talk(f"-- attempt {found['attempt']} has written nothing yet; attempt {shown['attempt']} wrote --")
            printer.take(shown, skip_gap=True)
            if follow:
                return _follow(api, found, shown, printer, only=attempt)
            printer.end()
            return exits.DONE


def _check_attempt(run: dict[str, Any], attempt: int | None) -> None:
    """Refuse an attempt that there is not.

    Raises:
        CliError: with those that there are (exit 2).
    """
    newest = int(run.get("attempt") or 0)
    if attempt is None or attempt <= newest or not newest:
        return
    known = ", ".join(map(str, range(1, newest + 1))) if newest <= _LISTED else f"1 to {newest}"
    raise CliError(
        f"{runs.handle(run)} has no attempt {attempt}",
        fix=f"its attempt{'s' if newest > 1 else ''}: {known}",
        exit_code=exits.USAGE,
        code="no_such_attempt",
    )


def _nothing(run: dict[str, Any], attempt: int | None) -> CliError:
    """Why there is no byte of the log: that of an attempt that is over is known to be empty, else it may come."""
    name, newest = runs.handle(run), int(run.get("attempt") or 0)
    number = attempt or newest
    over = number < newest or run.get("attempt_ended") or run.get("final")
    reason = (run.get("missing") or {}).get("log")
    fix = "" if over else f"wait for it: {words.command('logs', '-f', name)}"
    if not newest:
        text, over = f"{name} has no log: nothing was launched yet", True
        fix = f"see why: {words.command('why', name)}"
    elif run.get("kind") == "adopted" and reason:
        text = f"the log of {name} cannot be read: {reason}"
        fix = "its log is seen here when it is adopted with --log PATH"
    elif run.get("reachable") is False:
        text, over = f"no line of attempt {number} of {name} has come, and {run.get('host')} does not answer", False
    elif over:
        text = f"attempt {number} of {name} wrote nothing"
    else:
        text = f"attempt {number} of {name} has written nothing yet" + (f": {reason}" if reason else "")
    return CliError(text, fix=fix, exit_code=exits.NOT_RUNNING if over else exits.UNKNOWN, code="no_log")


def _follow(api: Api, run: dict[str, Any], shown: dict[str, Any], printer: _Printer, *, only: int | None) -> int:
    """Print what comes until the run is final, moving on to later attempts."""
    from dflash_supervise.cli import watch

    attempt, offset = int(shown.get("attempt") or run.get("attempt") or 0), int(shown.get("next") or 0)
    for look in watch.looks(api, str(run["id"]), poll_s=_POLL_S):
        offset = _drain(api, run, attempt, offset, printer)
        newest = int(look.get("attempt") or 0)
        while attempt < newest and only is None:  # one after the other: several may have begun between two looks
            printer.end()
            if attempt:
                say.talk(f"-- attempt {attempt} ended, attempt {attempt + 1} goes on --")
            attempt, offset = attempt + 1, _drain(api, run, attempt + 1, 0, printer)
        if look.get("final") or (only is not None and newest > only):
            _drain(api, run, attempt, offset, printer)
            printer.end()
            return runs.exit_status(look) if look.get("final") else exits.DONE
    raise AssertionError("looks never ends by itself")


def _drain(api: Api, run: dict[str, Any], attempt: int, offset: int, printer: _Printer) -> int:
    """Print everything from offset on; the new offset."""
    if attempt < 1:
        return offset
    while True:
        part = api.get(f"/runs/{run['id']}/log", attempt=attempt, offset=offset, limit=_CHUNK_BYTES)
        printer.take(part, expected=offset)
        # Not `offset + limit` and not `size`: only the answer itself knows how far its text goes.
        after, size = int(part.get("next") or 0), int(part.get("size") or 0)
        if not offset < after < size:
            return max(offset, after)
        offset = after


class _Printer:
    """Holds the unfinished last line between two looks."""

    def __init__(self, *, raw: bool, as_json: bool, run_id: str) -> None:
        self._raw = raw
        self._as_json = as_json
        self._run_id = run_id
        self._lines = clean.Lines()
        self._colour = say.stdout_style().colour

    def take(self, part: dict[str, Any], *, expected: int = 0, skip_gap: bool = False) -> None:
        text = str(part.get("text") or "")
        begin = int(part.get("offset") or 0)
        if begin > expected and not skip_gap:
            say.talk(f"-- {words.bytes_(begin - expected)} are not kept here --")
        if self._as_json:
            if text:
                say.document_line(
                    {"schema": 1, "run": self._run_id, "attempt": part.get("attempt"), "offset": begin, "text": text}
                )
        elif self._raw:
            say.raw(text)
        else:
            for line in self._lines.feed(text):
                say.data(clean.line(line, colour=self._colour))

    def end(self) -> None:
        """Print what never got its line end."""
        if self._lines.partial and not self._as_json and not self._raw:
            say.data(clean.line(self._lines.partial, colour=self._colour))
        self._lines.partial = ""
