"""Host keys and logins over SSH: who is believed, and with which key we are let in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_supervise.link import HostLink, HostTarget, LinkSettings, errors, trust
from tests.conftest import Laboratory
from tests.integration.link.harness import WAIT_S, config, failure, new_key, until
from tests.lab.sshd import Sshd

Open = Callable[..., HostLink]


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
