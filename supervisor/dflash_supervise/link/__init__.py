"""The only way to a host: SSH by paramiko or a process of this machine, one agent stream over either.

Importing this package, `errors` or `settings` costs no paramiko; that comes with the first
`HostLink` that connects over SSH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_supervise.config.target import HostTarget, parse_target
from dflash_supervise.link.errors import LinkError
from dflash_supervise.link.settings import LinkSettings

if TYPE_CHECKING:
    from dflash_supervise.link.connect import trust
    from dflash_supervise.link.host import Follow, HostLink, LinkState
    from dflash_supervise.link.push import push_trainer
    from dflash_supervise.link.remote_tmux import start_session

__all__ = [
    "Follow",
    "HostLink",
    "HostTarget",
    "LinkError",
    "LinkSettings",
    "LinkState",
    "parse_target",
    "push_trainer",
    "start_session",
    "trust",
]

_HEAVY = {
    "Follow": "host",
    "HostLink": "host",
    "LinkState": "host",
    "push_trainer": "push",
    "start_session": "remote_tmux",
    "trust": "connect",
}


def __getattr__(name: str) -> object:
    if name not in _HEAVY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HEAVY[name]}"), name)
