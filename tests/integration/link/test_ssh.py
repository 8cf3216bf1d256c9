"""What only SSH has: jumps, shells, and a network that goes away."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_supervise.link import Follow, HostLink, HostTarget, LinkError, LinkSettings
from tests.conftest import Laboratory
from tests.integration.link.harness import WAIT_S, Sink, agents, config, failure, until
from tests.lab.sshd import Sshd

Open = Callable[..., HostLink]


def write_records(workspace: Path, first: int, last: int) -> None:
    with open(workspace / "records.jsonl", "a") as records:
        for seq in range(first, last + 1):
            records.write(json.dumps({"epoch": "000001-aaaa", "seq": seq}) + "\n")


# ---------------------------------------------------------------- ways


def test_a_proxy_command_is_used_and_reaped(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, laboratory: Laboratory
) -> None:
    relay = laboratory.root / "relay.py"
    relay.write_text(RELAY)
    # It outlives its connection, as a stuck corporate proxy does.
    config(sshd, ProxyCommand=f"sh -c 'python3 {relay} %h %p; sleep 1000'")
    link = open_link(gpubox)
    assert link.wait_ready(WAIT_S).status == "ready"
    link.close()
    until(lambda: not [p for p in laboratory.leftovers() if any(str(relay) in word for word in p.argv)])
    assert not [p for p in laboratory.leftovers() if p.argv == ("sleep", "1000")]


def test_a_proxy_command_that_dies_is_told_with_its_words(sshd: Sshd, gpubox: HostTarget, open_link: Open) -> None:
    config(sshd, ProxyCommand="sh -c 'echo no way through >&2; exit 1'")
    dead = failure(open_link(gpubox))
    assert dead.code == "no_banner" and "no way through" in dead.message


def test_a_chain_of_two_jump_hosts_is_walked_with_each_hops_own_settings(
    start_sshd: Callable[..., Sshd], workspace: Path, open_link: Open, settings: LinkSettings, laboratory: Laboratory
) -> None:
    first, second, last = start_sshd(), start_sshd(), start_sshd()
    joined = laboratory.root / "ssh_config"
    text = "".join(
        host.ssh_config.read_text().replace("Host gpubox", f"Host {name}")
        for host, name in ((first, "first"), (second, "second"), (last, "last"))
    )
    joined.write_text(text.replace("Host last\n", "Host last\n  ProxyJump first,second\n"))
    link = open_link(HostTarget("last", str(workspace)), replace(settings, ssh_config=joined))
    assert link.wait_ready(WAIT_S).status == "ready"
    assert "Accepted publickey" in first.log.read_text() and "Accepted publickey" in second.log.read_text()


def test_a_loop_of_jump_hosts_is_refused(sshd: Sshd, gpubox: HostTarget, open_link: Open) -> None:
    config(sshd, ProxyJump="gpubox")
    assert failure(open_link(gpubox)).code == "ssh_config"


RELAY = """
import os, select, socket, sys
sock = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    for ready in select.select([sock, 0], [], [])[0]:
        data = sock.recv(65536) if ready is sock else os.read(0, 65536)
        if not data:
            sys.exit()
        sock.sendall(data) if ready == 0 else os.write(1, data)
"""


# ---------------------------------------------------------------- nobody there


def test_a_port_without_a_listener_is_refused(sshd: Sshd, gpubox: HostTarget, open_link: Open) -> None:
    config(sshd, Port="1")
    assert failure(open_link(gpubox)).code == "refused"


def test_a_name_that_nobody_knows_is_unreachable(isolated_home: Path, open_link: Open, workspace: Path) -> None:
    assert failure(open_link(HostTarget("no-such-host.invalid", str(workspace)))).code == "unreachable"


def test_a_port_that_says_nothing_has_no_banner(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, settings: LinkSettings
) -> None:
    sshd.relay.dark()
    assert failure(open_link(gpubox, replace(settings, connect_timeout_s=1.5))).code == "no_banner"


# ---------------------------------------------------------------- shells


def test_a_noisy_shell_is_only_noise(sshd: Sshd, gpubox: HostTarget, open_link: Open, laboratory: Laboratory) -> None:
    (laboratory.host_home / ".bashrc").write_text("echo WELCOME; echo ERR >&2; printf 'no line end'; PATH=/nowhere\n")
    assert "WELCOME" in sshd.run("true").stdout
    assert open_link(gpubox).wait_ready(WAIT_S).status == "ready"


def test_a_shell_that_ends_at_once_is_named_with_what_it_said(
    gpubox: HostTarget, open_link: Open, laboratory: Laboratory
) -> None:
    (laboratory.host_home / ".bashrc").write_text("echo This account is not available.; exit 1\n")
    refused = failure(open_link(gpubox))
    assert refused.code == "shell_refuses"
    assert "exit status 1" in refused.message and "This account is not available." in refused.message


def test_a_shell_that_hangs_is_silent_within_the_hello_limit(
    gpubox: HostTarget, open_link: Open, settings: LinkSettings, laboratory: Laboratory
) -> None:
    waits = "while [ ! -e $HOME/go ]; do sleep 0.1; done"
    (laboratory.host_home / ".bashrc").write_text(f"echo loading modules; {waits}\n")
    link = open_link(gpubox, replace(settings, hello_timeout_s=2.0))
    silent = failure(link)
    assert silent.code == "agent_silent" and "loading modules" in silent.message
    assert silent.needs_person
    link.close()
    (laboratory.host_home / "go").touch()


def test_one_session_is_enough(
    start_sshd: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch, workspace: Path, open_link: Open
) -> None:
    host = start_sshd(max_sessions=1)
    monkeypatch.setenv("PATH", host.env()["PATH"])
    link = open_link(HostTarget(host.alias, str(workspace)))
    link.wait_ready(WAIT_S)
    assert link.request({"op": "tmux", "argv": ["-V"]})["out"].startswith("tmux ")


def test_a_server_without_sessions_has_no_channel(
    start_sshd: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch, workspace: Path, open_link: Open
) -> None:
    host = start_sshd(max_sessions=0)
    monkeypatch.setenv("PATH", host.env()["PATH"])
    assert failure(open_link(HostTarget(host.alias, str(workspace)))).code == "no_channel"


# ---------------------------------------------------------------- a network that goes away


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "silent"])
def test_a_cut_loses_and_doubles_no_record(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, sink: Sink, workspace: Path, reset: bool
) -> None:
    sink.follows = [Follow("run-1", str(workspace))]
    write_records(workspace, 1, 50)
    link = open_link(gpubox)
    link.wait_ready(WAIT_S)
    until(lambda: len(sink.seqs()) == 50)
    sshd.cut(6.0, reset=reset)
    write_records(workspace, 51, 400)
    until(lambda: sink.statuses()[-1] == "ready" and len(sink.statuses()) > 1 and sink.seqs()[-1] == 400)
    assert sink.seqs() == list(range(1, 401))
    assert ("agent_silent" in sink.errors()) is not reset


def test_many_threads_that_ask_into_the_dark_are_all_woken(sshd: Sshd, gpubox: HostTarget, open_link: Open) -> None:
    link = open_link(gpubox)
    link.wait_ready(WAIT_S)
    sshd.relay.dark()
    codes: list[str] = []

    def ask() -> None:
        try:
            for _ in range(200):
                link.request({"op": "say_back", "text": "x" * 200_000}, WAIT_S)
        except LinkError as error:
            codes.append(error.code)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert codes == ["agent_silent"] * 8
    sshd.relay.restore()
    until(lambda: link.state.status == "ready")


def test_the_agent_of_a_lost_connection_does_not_stay(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, sink: Sink, laboratory: Laboratory
) -> None:
    open_link(gpubox).wait_ready(WAIT_S)
    sshd.relay.cut()
    until(lambda: sink.statuses() == ["ready", "connecting", "ready"])
    until(lambda: len(agents(laboratory)) == 1)
