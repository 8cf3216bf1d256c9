"""What only SSH has: host keys, logins, shells, jumps, and a network that goes away."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_supervise.link import Follow, HostLink, HostTarget, LinkError, LinkSettings, errors, trust
from tests.conftest import Laboratory
from tests.integration.link.harness import WAIT_S, Sink, agents, until
from tests.lab.sshd import Sshd

Open = Callable[..., HostLink]


def write_records(workspace: Path, first: int, last: int) -> None:
    with open(workspace / "records.jsonl", "a") as records:
        for seq in range(first, last + 1):
            records.write(json.dumps({"epoch": "000001-aaaa", "seq": seq}) + "\n")


def failure(link: HostLink) -> LinkError:
    with pytest.raises(LinkError) as failed:
        link.wait_ready(WAIT_S)
    return failed.value


def config(host: Sshd, **changes: str) -> None:
    """Change options of `gpubox` in the client's configuration."""
    lines = [line for line in host.ssh_config.read_text().splitlines() if (line.split() or [""])[0] not in changes]
    lines += [f"  {name} {value}" for name, value in changes.items() if value]
    host.ssh_config.write_text("\n".join(lines) + "\n")


def new_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return path


# ---------------------------------------------------------------- host keys


def test_an_unknown_host_key_is_shown_and_refused_until_a_person_trusts_it(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, settings: LinkSettings
) -> None:
    users = sshd.known_hosts.read_text()
    config(sshd, UserKnownHostsFile="/dev/null")
    link = open_link(gpubox)
    unknown = failure(link)
    assert isinstance(unknown, errors.HostKeyUnknown) and unknown.exit_code == 5
    printed = subprocess.run(
        ["ssh-keygen", "-lf", f"{sshd.host_key}.pub"], capture_output=True, text=True, check=True
    ).stdout
    assert unknown.fingerprint in printed and unknown.key_type == "ssh-ed25519"

    with pytest.raises(errors.HostKeyUnknown):
        trust(gpubox, "SHA256:" + "A" * 43, settings)
    assert not settings.known_hosts.exists()

    trust(gpubox, unknown.fingerprint, settings)
    assert settings.known_hosts.stat().st_mode & 0o777 == 0o600
    assert link.wait_ready(WAIT_S).status == "ready"
    assert sshd.known_hosts.read_text() == users


def test_trusting_twice_adds_one_line(sshd: Sshd, gpubox: HostTarget, settings: LinkSettings) -> None:
    config(sshd, UserKnownHostsFile="/dev/null")
    with pytest.raises(errors.HostKeyUnknown) as unknown:
        trust(gpubox, "", settings)
    for _ in range(2):
        trust(gpubox, unknown.value.fingerprint, settings)
    assert len(settings.known_hosts.read_text().splitlines()) == 1


def test_a_changed_host_key_is_refused_and_cannot_be_trusted_away(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, settings: LinkSettings
) -> None:
    sshd.change_host_key()
    changed = failure(open_link(gpubox))
    assert isinstance(changed, errors.HostKeyChanged)
    assert str(sshd.known_hosts) in changed.message
    with pytest.raises(errors.HostKeyChanged):
        trust(gpubox, changed.fingerprint, settings)


def test_a_revoked_host_key_is_refused(sshd: Sshd, gpubox: HostTarget, open_link: Open) -> None:
    sshd.known_hosts.write_text(sshd.known_hosts.read_text() + "@revoked " + sshd.known_hosts.read_text())
    assert failure(open_link(gpubox)).code == "host_key_revoked"


@pytest.mark.parametrize("form", ["hashed", "wildcard", "alias", "bare"])
def test_known_hosts_is_read_as_openssh_reads_it(sshd: Sshd, gpubox: HostTarget, open_link: Open, form: str) -> None:
    name, key = sshd.known_hosts.read_text().split(" ", 1)
    broken = "gpubox ssh-ed25519 not/base64\n\n@cert-authority *.example ssh-rsa AAAA\n"
    if form == "hashed":
        sshd.known_hosts.write_text(f"{name} {key}")
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(sshd.known_hosts)], check=True, capture_output=True)
        Path(f"{sshd.known_hosts}.old").unlink()
    else:
        line = {"wildcard": "[127.0.0.*]:*", "alias": "the-box", "bare": "127.0.0.1"}[form]
        sshd.known_hosts.write_text(f"{broken}{line}  {key}")
    if form == "alias":
        config(sshd, HostKeyAlias="the-box")
    assert open_link(gpubox).wait_ready(WAIT_S).status == "ready"


class SeveralKeys(Sshd):
    """A host that offers an RSA key beside its Ed25519 key, which clients like better."""

    def _server_lines(self) -> list[str]:
        rsa = self.folder / "rsa_key"
        if not rsa.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(rsa)], check=True)
        return [*super()._server_lines(), f"HostKey {rsa}"]


def test_the_server_is_asked_for_a_key_that_can_be_compared(
    laboratory: Laboratory, workspace: Path, open_link: Open, settings: LinkSettings
) -> None:
    host = SeveralKeys(laboratory.root, env=laboratory.host_env)
    try:
        # Only the RSA key is known, and beside it a stale key of a third type.
        name = host.known_hosts.read_text().split(" ", 1)[0]
        stale = laboratory.root / "stale"
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(stale)], check=True)
        halves = [Path(f"{key}.pub").read_text().split() for key in (stale, host.folder / "rsa_key")]
        host.known_hosts.write_text("".join(f"{name} {half[0]} {half[1]}\n" for half in halves))
        target = HostTarget(host.alias, str(workspace))
        link = open_link(target, replace(settings, ssh_config=host.ssh_config))
        assert link.wait_ready(WAIT_S).status == "ready"
        link.close()
    finally:
        host.close()


# ---------------------------------------------------------------- logging in


def test_a_wrong_key_is_named_with_what_came_of_it(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, laboratory: Laboratory
) -> None:
    wrong = new_key(laboratory.root / "wrong")
    config(sshd, IdentityFile=str(wrong))
    refused = failure(open_link(gpubox))
    assert isinstance(refused, errors.AuthFailed)
    assert refused.tried == (f"{wrong}: Authentication failed",)


def test_keys_that_cannot_be_used_are_named_with_the_reason(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, laboratory: Laboratory
) -> None:
    locked = new_key(laboratory.root / "locked", "secret")
    open_to_all = new_key(laboratory.root / "open")
    open_to_all.chmod(0o644)
    config(sshd, IdentityFile=str(locked), User="root")
    config(sshd, ProxyJump="none")
    sshd.ssh_config.write_text(sshd.ssh_config.read_text() + f"  IdentityFile {open_to_all}\n")
    refused = failure(open_link(gpubox))
    assert isinstance(refused, errors.AuthFailed)
    assert "needs a passphrase" in refused.tried[0] and "others can read it" in refused.tried[1]


@pytest.fixture
def ssh_agent(laboratory: Laboratory) -> Iterator[Path]:
    path = laboratory.root / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    until(path.exists)
    yield path
    process.terminate()
    process.wait()


def add_key(agent: Path, key: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(key)], env={"SSH_AUTH_SOCK": str(agent), "PATH": "/usr/bin:/bin"}, check=True)


def test_a_public_half_finds_its_key_in_the_agent_that_the_configuration_names(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, ssh_agent: Path, laboratory: Laboratory
) -> None:
    for number in range(6):
        add_key(ssh_agent, new_key(laboratory.root / f"other{number}"))
    add_key(ssh_agent, sshd.key)
    public = shutil.copy(f"{sshd.key}.pub", laboratory.root / "held.pub")
    config(sshd, IdentityFile=str(public), IdentityAgent=str(ssh_agent))
    assert open_link(gpubox).wait_ready(WAIT_S).status == "ready"


def test_many_agent_keys_leave_room_for_the_file_that_is_named(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, settings: LinkSettings, ssh_agent: Path, laboratory: Laboratory
) -> None:
    for number in range(8):
        add_key(ssh_agent, new_key(laboratory.root / f"other{number}"))
    config(sshd, IdentitiesOnly="no")
    assert open_link(gpubox, replace(settings, auth_sock=str(ssh_agent))).wait_ready(WAIT_S).status == "ready"


def test_identities_only_keeps_the_agents_other_keys_out(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, settings: LinkSettings, ssh_agent: Path, laboratory: Laboratory
) -> None:
    add_key(ssh_agent, sshd.key)
    wrong = new_key(laboratory.root / "wrong")
    config(sshd, IdentityFile=str(wrong))
    refused = failure(open_link(gpubox, replace(settings, auth_sock=str(ssh_agent))))
    assert isinstance(refused, errors.AuthFailed) and len(refused.tried) == 1


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
