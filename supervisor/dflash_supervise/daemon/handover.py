"""Goals to the host: every change is a newer generation, handed over by the agent's compare-and-swap."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from dflash_supervise.config.target import HostTarget
from dflash_supervise.daemon.operations import Operation
from dflash_supervise.daemon.seam import HostLink
from dflash_supervise.daemon.sessions import ensure_session
from dflash_supervise.link.errors import AgentRefusal, LinkError
from dflash_supervise.store import Store, asks_for_another

Doc = dict[str, Any]

log = logging.getLogger(__name__)

REQUEST_S = 20.0
CONFLICT = "spec_conflict"


class Handover:
    """Hands specs over. One at a time a run, so that two requests cannot fight each other's generations."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self.owner = owner
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def change(self, run_id: str, goal: Mapping[str, Any]) -> Doc:
        """Keep a new goal: the spec with the next generation. Nothing is sent yet."""
        with self._of(run_id):
            known = self._store.spec(run_id)
            spec = known["spec"]
            wanted = {
                **spec,
                "goal": _merged(known, goal),
                "generation": spec["generation"] + 1,
                "owner": self.owner,
                "highest_attempt": self._store.highest_attempt(run_id),
            }
            self._store.put_spec(wanted)
        return wanted

    def register(
        self, link: HostLink, target: HostTarget, spec: Doc, context: Doc | None, operation: Operation
    ) -> None:
        """Keep a new run and hand it over; one that its host refuses leaves nothing behind.

        Raises:
            LinkError: the host did not take it.
        """
        self._store.add_run(spec, host=target.key, target=str(target))
        operation.run_id = spec["run_id"]
        try:
            self.first(link, spec, context)
        except LinkError as error:
            if error.code == "request_timeout" or link.state.status != "ready":
                raise  # it may have arrived: the watch asks the host when it answers again
            self._store.remove_run(spec["run_id"])
            operation.run_id = None
            raise

    def first(self, link: HostLink, spec: Doc, context: Doc | None) -> None:
        """Hand a new run over, with its launch context where we launch it.

        Raises:
            LinkError: the host did not take it.
        """
        op: Doc = {"op": "spec", "workspace": spec["workspace"], "spec": spec, "based_on": 0}
        if context is not None:
            op["context"] = context
        with self._of(spec["run_id"]):
            link.request(op, REQUEST_S)
            self._store.set_delivered(spec["run_id"], spec["generation"])

    def deliver(self, link: HostLink, run_id: str) -> bool:
        """Bring the host up to what is wanted; whether it is now. A rival's newer spec ends our writing.

        Raises:
            LinkError: the host cannot be asked now.
        """
        with self._of(run_id):
            known = self._store.spec(run_id)
            spec = known["spec"]
            if known["owner_elsewhere"] or known["delivered"] >= spec["generation"]:
                return not known["owner_elsewhere"]
            op = {"op": "spec", "workspace": spec["workspace"], "spec": spec, "based_on": known["delivered"]}
            try:
                link.request(op, REQUEST_S)
            except AgentRefusal as error:
                if error.code != CONFLICT:
                    raise
                return self._settle(link, spec)
            self._store.set_delivered(run_id, spec["generation"])
        agent = link.request({"op": "ensure_agent", "workspace": spec["workspace"], "run_id": run_id}, REQUEST_S)
        if asks_for_another(spec["goal"]):
            ensure_session(link, spec, agent["command"])  # the old one may have ended with the run
        return True

    def _settle(self, link: HostLink, spec: Doc) -> bool:
        """The host holds another generation than we believed: ours (a restored store), or a rival's."""
        run_id = spec["run_id"]
        there = host_spec(link, spec["workspace"], run_id)
        if there is None:
            log.error("the host refuses the spec and does not show its own run=%s", run_id)
            return False
        if there["owner"] != self.owner:
            log.error("another supervisor owns the run now run=%s owner=%s", run_id, there["owner"])
            self._store.set_owner_elsewhere(run_id, there["owner"])
            return False
        # Ours, from a store that was put back: go on above it, the goal wanted last stays.
        self._store.put_spec({**spec, "generation": max(spec["generation"], there["generation"] + 1)})
        self._store.set_delivered(run_id, there["generation"])
        return False

    def _of(self, run_id: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(run_id, threading.Lock())


def _merged(known: Mapping[str, Any], goal: Mapping[str, Any]) -> Doc:
    """The new goal; a release takes no restart back that the host has not seen yet."""
    before = known["spec"]["goal"]
    new = {"want": "run", "hold_for_s": None, "end_attempt": None, **goal}
    unseen = known["acknowledged"] < known["spec"]["generation"]
    if unseen and new["want"] == before["want"] == "run" and "end_attempt" not in goal:
        new["end_attempt"] = before.get("end_attempt")
    return new


def host_spec(link: HostLink, workspace: str, run_id: str) -> Doc | None:
    """The spec that the host holds for a run; None when it has no such run.

    Raises:
        LinkError
    """
    for run in list_runs(link, workspace):
        if run["run_id"] == run_id:
            found = run.get("spec")
            return found if isinstance(found, dict) else None
    return None


def list_runs(link: HostLink, workspace: str) -> list[Doc]:
    answer = link.request({"op": "list", "workspace": workspace}, REQUEST_S)
    return list(answer["runs"])


__all__ = ["Handover", "LinkError", "host_spec", "list_runs"]
