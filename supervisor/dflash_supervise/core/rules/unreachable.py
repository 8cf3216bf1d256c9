"""The host cannot be asked: nothing is known of the run, and nothing may be concluded from silence."""

from __future__ import annotations

import re
from typing import Optional

from .. import causes
from ..context import Context
from ..facts import LogReading
from ..opinion import Opinion, about
from ..verdicts import Evidence, Verdict

_WHY = (
    (
        "host_key_changed",
        re.compile(r"HOST IDENTIFICATION HAS CHANGED|[Hh]ost key (?:verification failed|mismatch|has ch)"),
    ),
    (
        "too_many_sessions",
        re.compile(
            r"[Tt]oo many (?:open )?sessions|session request failed|Session open refused|MaxS(?:essions|tartups)"
        ),
    ),
    ("auth_error", re.compile(r"Permission denied \(|[Aa]uthentication fail|Too many authentication failures")),
    ("spot_preemption", re.compile(r"preempt|spot interruption", re.IGNORECASE)),
)


def unreachable(context: Context, log: LogReading) -> Optional[Opinion]:
    """An opinion while SSH does not answer, None while it does or nobody asked."""
    said = context.ssh.strip()
    if context.ended or said.lower() in ("", "ok", "up", "connected", "alive", "true"):
        return None
    cause = next((slug for slug, pattern in _WHY if pattern.search(said)), "ssh_connection_lost")
    text = "the host cannot be asked; the run may well go on"
    action = causes.PAGE if cause == "auth_error" else None
    return about(Verdict.HOST_UNREACHABLE, cause, text, log.progress, Evidence("SSH", said[:300]), action=action)
