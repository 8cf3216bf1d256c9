"""What ``diagnose`` prints: the verdict, the line that says so, why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dflash_supervise.cli import marks, words
from dflash_supervise.cli.say import Style
from dflash_supervise.core import causes

_ACTIONS = {
    causes.NONE: "nothing",
    causes.WAIT: "wait",
    causes.RESTART: "start it again",
    causes.AFTER_CLEANUP: "clean up, then start it again",
    causes.FIX_CONFIG: "do not start it again before something is changed",
    causes.PAGE: "a person has to look",
}


def render(found: Mapping[str, Any], style: Style) -> list[str]:
    """The whole answer as lines; found is a diagnosis as plain data, already safe to print."""
    verdict, cause = str(found["verdict"]), causes.get(str(found["cause"]))
    sign = marks.verdict_sign(verdict, style)
    word = style.paint(verdict.replace("_", " "), "bold", *marks.verdict_colours(verdict))
    named = f", {cause.slug}: {cause.title}" if cause.slug != "none" else ""
    lines = [f"{sign} {word}{named}", *style.wrap(str(found["reason"]), 2)]
    if found["key_line"]:
        where = f"line {found['key_line_number']}" if found["key_line_number"] else "the log's last line"
        rank = f", rank {found['rank']}" if found["rank"] is not None else ""
        lines += ["", style.paint(f"{where}{rank}", "bold"), f"  {words.cut(str(found['key_line']), style.width - 2)}"]
    if found["evidence"]:
        lines += ["", style.paint("Why", "bold")]
        for fact in found["evidence"]:
            unit = f" {fact['unit']}" if fact.get("unit") else ""
            lines += style.wrap(f"{fact['what']}: {fact['value']}{unit}", 2)
    advice = f" ({cause.advice})" if cause.advice and cause.advice not in ("wait", "nothing") else ""
    lines += ["", style.paint("What to do", "bold")]
    lines += style.wrap(_ACTIONS.get(str(found["action"]), str(found["action"])) + advice, 2)
    return lines
