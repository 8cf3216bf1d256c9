"""The bundled trainer goes to a host once: by content hash, over the agent's stream, in pieces."""

from __future__ import annotations

import base64
from typing import Any, Protocol

from dflash_supervise.link.bundle import Bundle, trainer_bundle
from dflash_supervise.link.errors import AgentRefusal, AgentSilent, WorkspaceNotWritable

# In base64 with its envelope well below the 256 KiB of a line.
PIECE_BYTES = 96 * 1024
_PIECE_TIMEOUT_S = 60.0
_COULD_NOT_STORE = "io_error"


class Requests(Protocol):
    """What of a link this needs."""

    def request(self, op: dict[str, Any], timeout_s: float = ...) -> dict[str, Any]: ...


def push_trainer(link: Requests, workspace: str, bundle: Bundle | None = None) -> str:
    """Bring the trainer to `<workspace>/.dflash/trainer/<hash>/` unless it is there; the hash is returned.

    Raises:
        WorkspaceNotWritable: the host could not store it.
        LinkError: the link failed meanwhile; calling again is safe.
    """
    bundle = bundle or trainer_bundle()
    if _has(link, workspace, bundle):
        return bundle.hash
    try:
        for offset in range(0, len(bundle.data), PIECE_BYTES):
            piece = bundle.data[offset : offset + PIECE_BYTES]
            link.request(
                {
                    "op": "put",
                    "kind": bundle.kind,
                    "hash": bundle.hash,
                    "workspace": workspace,
                    "offset": offset,
                    "data": base64.b64encode(piece).decode(),
                    "last": offset + len(piece) == len(bundle.data),
                },
                _PIECE_TIMEOUT_S,
            )
    except AgentRefusal as error:
        if error.code == _COULD_NOT_STORE:
            fix = error.fix or "free space in the workspace, or make it writable"
            raise WorkspaceNotWritable(error.message, fix=fix) from error
        raise
    if not _has(link, workspace, bundle):
        raise AgentSilent(f"the host took the trainer {bundle.hash[:12]} and does not have it")
    return bundle.hash


def _has(link: Requests, workspace: str, bundle: Bundle) -> bool:
    op = {"op": "have", "kind": bundle.kind, "hash": bundle.hash, "workspace": workspace}
    return bool(link.request(op, _PIECE_TIMEOUT_S).get("have"))
