"""Options, arguments and value types that several verbs share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
_UNITS_S = (86400.0, 3600.0, 60.0, 1.0)


def duration(text: str) -> float:
    """Seconds, or parts with units: ``90``, ``45s``, ``10m``, ``2h30m``, ``1d``."""
    match = _DURATION.fullmatch(text.replace(" ", ""))
    if match is None or not any(match.groups()):
        raise click.BadParameter(f"{text!r} is no duration; write 90, 45s, 10m or 2h30m")
    return sum(float(part) * unit for part, unit in zip(match.groups(), _UNITS_S, strict=True) if part)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(function)


def yes_option(function: F) -> F:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask; needed where there is no terminal.")(function)


def dry_run_option(function: F) -> F:
    return click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(function)


def run_argument(function: F) -> F:
    return click.argument("run", shell_complete=complete_run)(function)


def target_argument(function: F) -> F:
    return click.argument("target", shell_complete=complete_target)(function)


def optional_run_argument(function: F) -> F:
    return click.argument("run", required=False, shell_complete=complete_run)(function)


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(str(run["name"]), help=str(run.get("verdict") or ""))
        for run in _known_runs()
        if str(run["name"]).startswith(incomplete)
    ]


def complete_target(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    targets = dict.fromkeys(str(run["target"]) for run in _known_runs() if run.get("target"))
    return [CompletionItem(target) for target in targets if target.startswith(incomplete)]


def _known_runs() -> list[dict[str, Any]]:
    """For completion only: no daemon means no suggestions, and a shell must never see an error of ours."""
    from dflash_supervise.cli import runs, session
    from dflash_supervise.cli.errors import CliError

    try:
        with session.connect() as api:
            return runs.all_runs(api)
    except CliError:
        return []
