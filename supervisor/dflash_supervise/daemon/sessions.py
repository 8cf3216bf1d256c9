"""The tmux session of a run: it shows the log to whoever attaches, and nothing else hangs on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from dflash_supervise.daemon.seam import HostLink
from dflash_supervise.link import LinkError, start_session

log = logging.getLogger(__name__)


def ensure_session(link: HostLink, spec: Mapping[str, Any], command: Sequence[str]) -> str | None:
    """Make the session if the run is to have one and has none; one that shows the log is left alone.

    Args:
        command: what starts the agent's code on the host, as the answer to ``ensure_agent`` names it.
    Returns:
        One line for the person; None where no session was asked for.
    """
    if not spec.get("tmux"):  # a spec of an earlier version does not say: nothing is made of that
        return None
    run_id, workspace = spec["run_id"], spec["workspace"]
    argv = [*command, "show", f"{workspace}/.dflash/runs/{run_id}"]
    try:
        began = start_session(link.tmux(), run_id, argv, cwd=workspace)
    except LinkError as error:
        why = error.message
    else:
        if began.status in ("started", "already_there"):
            return f"tmux session {began.name}"
        why = began.said or began.status
    log.warning("a run has no tmux session run=%s: %s", run_id, why)
    return f"no tmux session: {why}"
