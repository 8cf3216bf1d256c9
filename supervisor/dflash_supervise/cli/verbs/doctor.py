"""``doctor``: is everything there, and what to do where it is not."""

from __future__ import annotations

from typing import Any

import click

from dflash_supervise.cli import clean, exits, options, say


@click.command("doctor")
@options.optional_target_argument
@options.yes_option
@options.json_option
def command(target: str | None, yes: bool, as_json: bool) -> int:
    """Check this machine, or a target: SSH, Python, tmux, GPUs, disk; each problem with its fix.

    Exit status 5 if any check failed.
    """
    from dflash_supervise.cli import session, watch
    from dflash_supervise.cli.trust import trusting

    with session.connect_or_start(session.settings()) as api:
        request = {"target": target} if target else {}

        def ask() -> dict[str, Any]:
            return watch.operation(api, str(api.post("/doctor", request)["operation"]), say.StatusLine())

        done = trusting(api, target, ask, yes=yes) if target else ask()
    checks = done.get("checks") or []
    failed = any(check.get("ok") is False for check in checks)
    if as_json:
        say.document({"schema": 1, "target": target, "ok": not failed, "checks": checks})
    else:
        for line in render(clean.document(checks), say.stdout_style()):
            say.data(line)
    return exits.CHECK_FAILED if failed else exits.DONE


def render(checks: list[dict[str, Any]], style: say.Style) -> list[str]:
    """A line a check, its fix below it; what could not be checked is neither good nor bad."""
    width = max((len(str(check.get("name"))) for check in checks), default=0)
    signs = {True: ("\u2713", "green"), False: ("\u2717", "red")}
    lines = []
    for check in checks:
        sign, colour = signs.get(check.get("ok"), ("?", "yellow"))  # type: ignore[arg-type]  # None: not checked
        name = str(check.get("name")).ljust(width)
        first, *rest = style.wrap(str(check.get("detail") or "-"), width + 4)
        lines.append(f"{style.paint(sign, colour)} {name}  {first.strip()}")
        lines += rest
        if check.get("fix") and check.get("ok") is not True:
            lines += style.wrap(f"fix: {check['fix']}", width + 4)
    bad = sum(check.get("ok") is False for check in checks)
    unknown = sum(check.get("ok") is None for check in checks)
    more = f", {unknown} could not be checked" if unknown else ""
    lines.append(f"{len(checks)} checks, {bad} failed{more}")
    return lines
