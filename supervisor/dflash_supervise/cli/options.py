"""Options, arguments and value types that several verbs share."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from dflash_supervise.cli import exits, say
from dflash_supervise.cli.errors import CliError, did_you_mean
from dflash_supervise.core.policy import MOST_S

F = TypeVar("F", bound=Callable[..., Any])

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
_UNITS_S = (86400.0, 3600.0, 60.0, 1.0)


class Verbs(click.Group):
    """A group of verbs. Without one it shows its help; one that it has not is guessed."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": False, **given})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            say.talk(self.get_help(ctx))
            ctx.exit(exits.USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=2, cutoff=0.5)
            raise click.UsageError(f"no verb is called {args[0]!r}" + did_you_mean(near), ctx) from error


def duration(text: str) -> float:
    """Seconds, or parts with units: ``90``, ``45s``, ``10m``, ``2h30m``, ``1d``; at most 366 days."""
    match = _DURATION.fullmatch(text.replace(" ", ""))
    if match is None or not any(match.groups()):
        raise click.BadParameter(f"{text!r} is no duration; write 90, 45s, 10m or 2h30m")
    seconds = sum(float(part) * unit for part, unit in zip(match.groups(), _UNITS_S, strict=True) if part)
    if seconds > MOST_S:
        raise click.BadParameter(f"{text!r} is too long; use at most 366d")
    return seconds


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number with a least and perhaps a most, refused in words."""
    wanted = f"from {least} on" if most is None else f"from {least} to {most}"

    def n(text: str) -> int:  # its name is what --help shows for the value
        try:
            number = int(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is no whole number; use one {wanted}") from error
        if number < least or (most is not None and number > most):
            raise click.BadParameter(f"{number} is out of range; use a whole number {wanted}")
        return number

    return n


PORT = whole(0, 65535)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(function)


def yes_option(function: F) -> F:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask; needed where there is no terminal.")(function)


def dry_run_option(function: F) -> F:
    return click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(function)


def run_argument(function: F) -> F:
    return click.argument("run", shell_complete=complete_run)(function)


def target_argument(function: F) -> F:
    """A target, checked before anybody is contacted."""
    return click.argument("target", callback=_target, shell_complete=complete_target)(function)


def optional_target_argument(function: F) -> F:
    return click.argument("target", required=False, callback=_target, shell_complete=complete_target)(function)


def optional_run_argument(function: F) -> F:
    return click.argument("run", required=False, shell_complete=complete_run)(function)


def _target(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from dflash_supervise.config.target import parse_target

    if value is not None and not ctx.resilient_parsing:
        try:
            parse_target(value)
        except ValueError as error:
            raise CliError(str(error), exit_code=exits.USAGE, code="bad_target") from error
    return value


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from dflash_supervise.cli import runs

    return [
        CompletionItem(runs.handle(run), help=str(run.get("verdict") or ""))
        for run in _known_runs()
        if runs.handle(run).startswith(incomplete)
    ]


def complete_target(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    targets = dict.fromkeys(str(run["target"]) for run in _known_runs() if run.get("target"))
    return [CompletionItem(target) for target in targets if target.startswith(incomplete)]


def _known_runs() -> list[dict[str, Any]]:
    """For completion only: no daemon means no suggestions, and a shell must never see an error of ours."""
    from dflash_supervise.cli import runs, session

    try:
        with session.connect() as api:
            return runs.all_runs(api)
    except CliError:
        return []
