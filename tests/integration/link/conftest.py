"""Links to real hosts: a real sshd, or this machine's shell, with a stand-in behind the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dflash_supervise.link import HostLink, HostTarget, LinkSettings
from tests.integration.link.harness import Sink, stand_in
from tests.lab.sshd import Sshd


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def settings(isolated_home: Path) -> LinkSettings:
    return LinkSettings(
        state_dir=isolated_home / "state" / "dflash-supervise",
        agent_bundle=stand_in,
        silent_after_s=3.0,
        ping_every_s=0.5,
        retry_first_s=0.2,
        retry_most_s=1.0,
    )


@pytest.fixture
def open_link(sink: Sink, settings: LinkSettings) -> Iterator[Callable[..., HostLink]]:
    links: list[HostLink] = []

    def start(target: HostTarget, settings: LinkSettings = settings) -> HostLink:
        link = HostLink(target, sink, settings, cursors=sink.cursors)
        links.append(link)
        link.start()
        return link

    yield start
    for link in links:
        link.close()


@pytest.fixture
def gpubox(sshd: Sshd, workspace: Path) -> HostTarget:
    return HostTarget(host=sshd.alias, workspace=str(workspace))


@pytest.fixture
def here(isolated_home: Path, workspace: Path) -> HostTarget:
    return HostTarget(host="local", workspace=str(workspace), local=True)
