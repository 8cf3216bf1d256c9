"""What the pieces of a daemon share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dflash_supervise.daemon.handover import Handover
from dflash_supervise.daemon.ingest import Ingest
from dflash_supervise.daemon.links import Links
from dflash_supervise.daemon.seam import HostLink
from dflash_supervise.link import push_trainer
from dflash_supervise.store import Store


def push(link: HostLink, workspace: str) -> str:
    """The bundled trainer onto the host; its hash."""
    return push_trainer(link, workspace)


@dataclass(frozen=True)
class Parts:
    store: Store
    links: Links
    ingest: Ingest
    handover: Handover
    starting: set[str] = field(default_factory=set)  # starts under way: their missing delivery is no news
    push: Callable[[HostLink, str], str] = push
    clock: Callable[[], float] = time.time
