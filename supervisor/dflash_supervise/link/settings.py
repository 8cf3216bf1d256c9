"""How a link behaves: the files it may use and its time limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dflash_supervise.link.bundle import Bundle, agent_bundle

SSH_CONFIG_VARIABLE = "DFLASH_SUPERVISE_SSH_CONFIG"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Settings of every link of one daemon.

    state_dir: holds our own `known_hosts`; the user's file is read and never written.
    ssh_config: in place of the user's and the system's configuration (`ssh -F`).
    auth_sock: the SSH agent's socket in place of `SSH_AUTH_SOCK`.
    agent_environment: set for the agent before its Python starts, for tests and odd hosts.
    """

    state_dir: Path
    ssh_config: Path | None = None
    auth_sock: str | None = None
    agent_environment: Mapping[str, str] = field(default_factory=dict)
    agent_bundle: Callable[[], Bundle] = agent_bundle
    connect_timeout_s: float = 15.0
    hello_timeout_s: float = 30.0  # a slow .bashrc and the push of the agent over a slow line
    silent_after_s: float = 15.0  # three missed beats
    ping_every_s: float = 5.0
    retry_first_s: float = 1.0
    retry_most_s: float = 30.0
    retry_person_s: float = 300.0  # a wrong key tried more often looks like an attack to the host

    @property
    def known_hosts(self) -> Path:
        return self.state_dir / "known_hosts"

    @classmethod
    def from_environment(cls, state_dir: Path) -> LinkSettings:
        """The defaults, with the ssh configuration file that DFLASH_SUPERVISE_SSH_CONFIG names."""
        named = os.environ.get(SSH_CONFIG_VARIABLE)
        return cls(state_dir=state_dir, ssh_config=Path(named) if named else None)
