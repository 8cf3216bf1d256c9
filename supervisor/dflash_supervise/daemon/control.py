"""What the web side may ask of the daemon (``web.control.Control``): goals, operations, hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dflash_supervise.config import Settings
from dflash_supervise.config.target import HostTarget
from dflash_supervise.daemon import adopt, doctor, goals, launch, request
from dflash_supervise.daemon.operations import Operations
from dflash_supervise.daemon.parts import Parts
from dflash_supervise.link import LinkError
from dflash_supervise.web.control import Refused

Doc = dict[str, Any]

Trust = Callable[[HostTarget, str], str]


class DaemonControl:
    """The orders of a person, carried out or refused with a reason."""

    def __init__(
        self,
        parts: Parts,
        settings: Settings,
        *,
        trust: Trust,
        stop: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._settings = settings
        self._operations = Operations()
        self._trust = trust
        self._stop = stop

    def start(self, request_doc: Doc) -> str:
        wanted = request.parse_start(request_doc, self._settings.policy)
        return self._operations.begin("start", lambda operation: launch.start(self._parts, wanted, operation))

    def adopt(self, request_doc: Doc) -> str:
        wanted, configured = request.parse_adopt(request_doc), self._settings.policy
        return self._operations.begin(
            "adopt", lambda operation: adopt.adopt(self._parts, wanted, configured, operation)
        )

    def doctor(self, request_doc: Doc) -> str:
        target = request.parse_doctor(request_doc)
        return self._operations.begin(
            "doctor", lambda operation: doctor.doctor(self._parts, self._settings, target, operation)
        )

    def operation(self, operation_id: str) -> Doc | None:
        return self._operations.get(operation_id)

    def set_goal(self, run_id: str, goal: Doc) -> Doc:
        return goals.set_goal(self._parts, run_id, goal)

    def trust(self, target: str, fingerprint: str) -> Doc:
        wanted = request.target_of({"target": target})
        try:
            key_type = self._trust(wanted, fingerprint)
        except LinkError as error:
            raise Refused(error.code, error.message, error.fix, exit_code=error.exit_code) from error
        link = self._parts.links.get(wanted.key)
        if link is not None:
            link.retry()
        return {
            "host": wanted.key,
            "fingerprint": fingerprint,
            "key_type": key_type,
            "message": f"the key of {wanted.key} is trusted from now on",
        }

    def hosts(self) -> list[Doc]:
        return self._parts.store.hosts()

    def shutdown(self) -> None:
        self._stop()
