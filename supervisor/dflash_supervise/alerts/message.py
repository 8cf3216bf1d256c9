"""A telling as text that is enough on a phone. Pure: facts in, words out."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_supervise.core import causes

Doc = Mapping[str, Any]

HEADLINE_CHARACTERS = 150
KEY_LINE_CHARACTERS = 1000
EVIDENCE_SHOWN = 6

_SIGNS = {
    "started": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "done": "\N{HEAVY CHECK MARK}",
    "stopped": "\N{BLACK SQUARE}",
    "resolved": "\N{HEAVY CHECK MARK}",
    "reachable": "\N{HEAVY CHECK MARK}",
    "unreachable": "?",
    "silent": "?",
}
_CROSS = "\N{HEAVY MULTIPLICATION X}"
# Controls that reorder what a reader sees.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Message:
    """One message. ``text`` joins all of it for a channel that knows no markup."""

    headline: str
    severity: str
    lines: tuple[str, ...] = ()
    key_line: str = ""
    commands: tuple[str, ...] = ()
    link: str = ""

    @property
    def text(self) -> str:
        parts = [self.headline, *self.lines]
        if self.key_line:
            parts.append(f"    {self.key_line}")
        parts += self.commands
        if self.link:
            parts.append(self.link)
        return "\n".join(parts)


def compose(kind: str, severity: str, facts: Doc, public_url: str = "") -> Message:
    """The message for one entry of the outbox (``core.outbox.Telling``)."""
    name = _plain(facts.get("name", ""))
    where = f"{name} on {_plain(facts['host'])}" if name else _plain(facts.get("host", "?"))
    headline = f"{_SIGNS.get(kind, _CROSS)} {where}: {_what(kind, facts)}"
    return Message(
        headline=_cut(headline, HEADLINE_CHARACTERS),
        severity=severity,
        lines=tuple(_lines(kind, facts)),
        key_line=_cut(_plain(facts.get("key_line", "")), KEY_LINE_CHARACTERS),
        commands=_commands(kind, _plain(facts.get("run_id") or name)),
        link=f"{public_url.rstrip('/')}/runs/{facts['run_id']}" if public_url and facts.get("run_id") else "",
    )


def _what(kind: str, facts: Doc) -> str:
    match kind:
        case "started":
            gpus = facts.get("gpus")
            on = f" on {gpus} GPU{'s' if gpus != 1 else ''}" if gpus else ""
            return f"started{on}" if facts.get("run_kind") != "adopted" else "watched from now on"
        case "done":
            return "done" + (f" at step {facts['step']}" if facts.get("step") is not None else "")
        case "stopped":
            return "stopped by a person" + (f" at step {facts['step']}" if facts.get("step") is not None else "")
        case "resolved":
            return f"over: {_cause(facts)}"
        case "reminder":
            return f"still open after {duration(facts['open_s'])}: {_cause(facts)}"
        case "unreachable":
            runs = ", ".join(_plain(name) for name in facts.get("runs", []))
            return f"no answer for {duration(facts['silent_s'])}" + (f" (runs: {runs})" if runs else "")
        case "reachable":
            return "answers again"
        case "silent":
            return f"the agent says nothing for {duration(facts['silent_s'])}, though the host answers"
        case "gave_up":
            return f"{_cause(facts)}, {_plain(facts.get('response_text') or 'given up')}"
        case "refused":
            return f"not started: {_cause(facts)}"
    response = _plain(facts.get("response_text", ""))
    return _cause(facts) + (f", {response}" if response else "")


def _cause(facts: Doc) -> str:
    """Verdict and cause in words: "crash: CUDA out of memory"."""
    verdict = str(facts.get("verdict", "")).replace("_", " ")
    slug = facts.get("cause", "none")
    if slug in ("none", facts.get("verdict")):
        return verdict or "unknown"
    title = causes.BY_SLUG[slug].title if slug in causes.BY_SLUG else str(slug).replace("_", " ")
    return f"{verdict}: {title}" if verdict else title


def _lines(kind: str, facts: Doc) -> list[str]:
    found = []
    if facts.get("sentence"):
        found.append(_plain(facts["sentence"]))
    for item in list(facts.get("evidence", []))[:EVIDENCE_SHOWN]:
        found.append(f"\N{BULLET} {evidence_text(item)}")
    found += _cost(kind, facts)
    if kind == "refused" and facts.get("response_text"):
        found.append(_plain(facts["response_text"]))
    if kind == "unreachable":
        found.append("The run goes on by itself as far as it can; nothing is stopped or restarted from here.")
    if facts.get("fix"):
        found.append(_plain(facts["fix"]))
    return found


def evidence_text(item: Doc) -> str:
    """One fact with its unit and age: "step unchanged: 95 s (2 s ago)"."""
    value = item.get("value")
    shown = "unknown" if value is None else f"{value:g}" if isinstance(value, float) else _plain(value)
    unit = item.get("unit", "")
    age_s = item.get("age_s", 0.0)
    age = f" ({duration(age_s)} ago)" if age_s >= 1 else ""
    return f"{_plain(item.get('what', ''))}: {shown}{' ' + unit if unit else ''}{age}"


def _cost(kind: str, facts: Doc) -> list[str]:
    step, total = facts.get("step"), facts.get("steps_total")
    if kind == "done":
        numbers = [f"{key} {facts[key]:.4g}" for key in ("loss", "tau") if facts.get(key) is not None]
        return [", ".join(numbers)] if numbers else []
    if step is None or kind in ("started", "resolved"):
        return []
    at = f"step {step}" + (f" of {total}" if total is not None else "")
    lost, checkpoint = facts.get("steps_lost"), facts.get("checkpoint_step")
    if lost is None and checkpoint is not None:
        lost = max(0, step - checkpoint)
    if lost is None:
        return [f"Was at {at}; no checkpoint is known."]
    return [f"Was at {at}; {lost} step{'s' if lost != 1 else ''} since the last complete checkpoint."]


def _commands(kind: str, run: str) -> tuple[str, ...]:
    """By the run's id: a message is read when the name may have been given to another run."""
    if kind in ("unreachable", "reachable"):
        return ("dflash-supervise ps",)
    if kind in ("started", "done", "resolved", "stopped"):
        return (f"dflash-supervise status {run}",)
    return (f"dflash-supervise why {run}", f"dflash-supervise logs {run}")


def duration(seconds: float) -> str:
    """Short words: 45 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _plain(value: object) -> str:
    """Text from a host without controls: logs are hostile, also to who reads them on a phone."""
    kept = (" " if unicodedata.category(c) == "Cc" else c for c in str(value) if c not in _BIDI)
    return " ".join("".join(kept).split())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
