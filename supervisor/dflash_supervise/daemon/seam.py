"""The link as the daemon uses it. ``link.HostLink`` has this shape; tests bring their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dflash_supervise.config.target import HostTarget
from dflash_supervise.link.host import Follow, LinkState, Sink

Doc = dict[str, Any]


class HostLink(Protocol):
    """One host. ``wait_ready``, ``request`` and ``tmux`` raise ``link.LinkError``."""

    target: HostTarget  # the workspace in it is the agent's place, if it takes files

    @property
    def state(self) -> LinkState: ...

    def start(self) -> None: ...

    def close(self) -> None: ...

    def retry(self) -> None: ...

    def wait_ready(self, timeout_s: float) -> LinkState: ...

    def request(self, op: Doc, timeout_s: float = ...) -> Doc: ...

    def follow(self, run_id: str, workspace: str, cursor: Doc | None = None, log: Doc | None = None) -> None: ...

    def tmux(self) -> Any: ...


# Target, sink for what comes in, and the runs to follow at each connect.
MakeLink = Callable[[HostTarget, Sink, Callable[[], Sequence[Follow]]], HostLink]
