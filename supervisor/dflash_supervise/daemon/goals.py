"""A person's goal for a run: kept, handed over, and acknowledged by the agent when it is there."""

from __future__ import annotations

import logging
import time
from typing import Any

from dflash_supervise.core.goals import wishes
from dflash_supervise.daemon import request
from dflash_supervise.daemon.parts import Parts
from dflash_supervise.link import LinkError
from dflash_supervise.store import asks_for_another
from dflash_supervise.web.control import Refused

Doc = dict[str, Any]

log = logging.getLogger(__name__)

ACKNOWLEDGE_S = 5.0
_LOOK_S = 0.05
_GENERATIONS = 50  # how many are looked back for one that a newer one replaced


def set_goal(parts: Parts, run_id: str, goal: Doc) -> Doc:
    """Keep the goal, hand it over, and wait a little for the agent's word.

    Returns:
        {"generation", "delivered": the host holds it, "acknowledged": its agent said so, and where it is so
        "superseded_by": the newer generation that came before the agent saw this one}
    Raises:
        Refused: the run is over, cannot be started again, or belongs to another supervisor.
    """
    run = parts.store.run(run_id)
    if run is None:
        raise Refused("no_such_run", f"there is no run {run_id}", exit_code=102, http_status=404)
    _check(run, goal)
    if run["read_only"]:
        raise Refused(
            "spec_conflict",
            f"supervisor {run['read_only']} owns {run['name']} now",
            f"take it back with: dflash-supervise adopt {run['target']}",
        )
    spec = parts.handover.change(run["id"], goal)
    return {"generation": spec["generation"], **_deliver(parts, run["id"], spec, over=run["final"])}


def _check(run: Doc, goal: Doc) -> None:
    """Refuse what would be taken and then change nothing.

    Raises:
        Refused
    """
    open_to = wishes(run["kind"], run["verdict"], run["final"])
    again, newest = asks_for_another(goal), run["attempt"] or 0
    if ("restart" if again else "hold" if goal["want"] == "run" else goal["want"]) in open_to:
        if again and goal["end_attempt"] != newest:
            text = f"attempt {goal['end_attempt']} of {run['name']} is not the newest: that is attempt {newest}"
            raise Refused("not_current", text, "look at it, then ask again")
        return
    if again and not run["final"]:
        text = f"{run['name']} was started by somebody else, so it cannot be started again from here"
        raise Refused("not_ours", text, f"start it by hand, then watch it with: dflash-supervise adopt {run['target']}")
    fix = f"a new run: dflash-supervise start {run['target']}"
    if "restart" in open_to:
        fix = f"start it again with: dflash-supervise restart {run['id']}"
    raise Refused("already_over", f"{run['name']} is over: {run['sentence']}", fix, exit_code=6 if again else 3)


def _deliver(parts: Parts, run_id: str, spec: Doc, *, over: bool) -> Doc:
    link = parts.links.to(request.target_of(parts.store.spec(run_id)))
    if link.state.status != "ready":
        return {"delivered": False, "acknowledged": False}
    try:
        delivered = parts.handover.deliver(link, run_id)
        # A run that was over may be followed no more.
        parts.links.follow(link, run_id, spec["workspace"])
    except LinkError as error:
        if error.code == "no_context":
            # Once ended, the attempt could not be started again: the wish is taken back instead of waiting for ever.
            parts.handover.change(run_id, {"want": "run", "end_attempt": None})
            parts.store.reclose(run_id, over)
            raise Refused(error.code, error.message, error.fix) from error
        log.warning("a goal waits for its host run=%s code=%s", run_id, error.code)
        return {"delivered": parts.store.spec(run_id)["delivered"] >= spec["generation"], "acknowledged": False}
    return {"delivered": delivered, **(_acknowledged(parts, run_id, spec) if delivered else {"acknowledged": False})}


def _acknowledged(parts: Parts, run_id: str, spec: Doc) -> Doc:
    """Whether the agent had this very generation in force: it sees only the newest of several in one tick."""
    deadline = time.monotonic() + ACKNOWLEDGE_S
    while True:
        newest = parts.store.spec(run_id)["acknowledged"]
        if newest >= spec["generation"]:
            told = parts.store.records(run_id, kinds=("spec",), limit=_GENERATIONS, newest=True)
            if any(one["generation"] == spec["generation"] for one in told):
                return {"acknowledged": True}
            return {"acknowledged": False, "superseded_by": newest}
        if time.monotonic() >= deadline:
            return {"acknowledged": False}
        time.sleep(_LOOK_S)
