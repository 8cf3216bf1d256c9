"""Watching a run or an operation by looking again and again: a look missed is made up by the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

from dflash_supervise.cli import clean, exits, marks, words
from dflash_supervise.cli.api import Api, Json
from dflash_supervise.cli.errors import CliError, from_document
from dflash_supervise.cli.say import StatusLine, stderr_style

POLL_S = 0.4
GONE_S = 20.0  # a daemon that restarts is back well before this


def operation(api: Api, operation_id: str, line: StatusLine) -> Json:
    """Follow an operation to its end, showing its lines as they come.

    Raises:
        CliError: it failed; message, fix and exit code are the daemon's.
    """
    told = 0
    began = monotonic()
    while True:
        state = clean.document(api.get(f"/operations/{operation_id}"))
        lines = state.get("lines") or []
        for text in lines[told:]:
            line.log(f"  {text}")
        told = len(lines)
        if state.get("state") == "done":
            line.clear()
            return dict(state)
        if state.get("state") == "failed":
            line.clear()
            raise from_document(state.get("error") or {})
        line.show(f"  {lines[-1] if lines else 'starting'} ... {words.duration(monotonic() - began)}")
        sleep(POLL_S)


def looks(api: Api, run_id: str, *, poll_s: float = POLL_S) -> Iterator[Json]:
    """The run, again and again, for ever.

    Raises:
        CliError: the daemon has been away for long (exit 101: the run has not finished, we only stopped seeing it).
    """
    seen_at = monotonic()
    while True:
        try:
            run = api.get(f"/runs/{run_id}")
        except CliError as error:
            if error.exit_code != exits.NO_DAEMON:
                raise
            if monotonic() - seen_at > GONE_S:
                raise CliError(
                    "the daemon has gone away while we watched; the run goes on without it",
                    fix=words.command("daemon", "run"),
                    exit_code=exits.NOT_FINISHED,
                    code="daemon_gone",
                ) from error
        else:
            seen_at = monotonic()
            yield clean.document(run)
        sleep(poll_s)


def until(
    api: Api, run_id: str, done: Callable[[Json], bool], line: StatusLine, *, timeout_s: float | None = None
) -> Json:
    """The first look at the run for which ``done`` holds or that is final; changes of verdict are told meanwhile.

    Raises:
        CliError: the time is over (exit 124).
    """
    began = monotonic()
    last: tuple[Any, ...] = ()
    quoted = ""
    for run in looks(api, run_id):
        now = (run.get("attempt"), run.get("verdict"), run.get("cause"), run.get("suspected"))
        if now != last and run.get("verdict"):
            line.log(headline(run))
            last, quoted = now, ""
        if key_line(run) not in ("", quoted):
            quoted = key_line(run)
            line.log(f"    > {quoted}")
        if run.get("final") or done(run):
            line.clear()
            return run
        if timeout_s is not None and monotonic() - began > timeout_s:
            line.clear()
            raise CliError(
                f"not reached within {words.duration(timeout_s)}; the run goes on",
                exit_code=exits.TIMEOUT,
                code="timeout",
            )
        line.show(f"  {progress(run)}")
    raise AssertionError("looks never ends by itself")


def headline(run: Json) -> str:
    """One line about a run: sign, verdict, cause, sentence."""
    style = stderr_style()
    sign = marks.verdict_sign(run.get("verdict"), style)
    cause = run.get("cause") or "none"
    name = marks.verdict_word(run) + (f", {cause}" if cause != "none" else "")
    sentence = f": {run['sentence']}" if run.get("sentence") else ""
    return f"{sign} attempt {run.get('attempt') or 0} {style.paint(name, 'bold')}{sentence}"


def key_line(run: Json) -> str:
    """The line of the log that speaks for the verdict, whole; empty when there is none or the sentence has it all."""
    found = str(run.get("key_line") or "")
    return "" if found in str(run.get("sentence") or "") else found


def progress(run: Json) -> str:
    """What moves, in one line; what is unknown is left out."""
    parts = [str(run.get("phase") or run.get("verdict") or "waiting for news")]
    if run.get("step") is not None:
        parts.append(f"step {words.step_of(run['step'], run.get('steps_total'))}")
    for key, name in (("loss", "loss"), ("tau", "tau"), ("tokens_per_s", "tok/s")):
        if run.get(key) is not None:
            parts.append(f"{name} {words.number(run[key])}")
    if run.get("eta_s") is not None:
        parts.append(f"{words.duration(run['eta_s'])} to go")
    if run.get("news_age_s") is not None and run["news_age_s"] > 5:
        parts.append(f"news {words.duration(run['news_age_s'])} old")
    return " \u00b7 ".join(parts)


def has_first_step(run: Json) -> bool:
    """Training for sure: the verdict says running, or a step was made while starting was still the word."""
    if run.get("verdict") == "completed":
        return True
    return run.get("verdict") == "running" and (run.get("step") is None or int(run["step"]) >= 1)


def has_bad_verdict(run: Json) -> bool:
    """A confirmed verdict that is neither healthy nor mere silence of the host."""
    verdict = run.get("verdict")
    return bool(verdict) and verdict not in marks.HEALTHY and not run.get("suspected")
