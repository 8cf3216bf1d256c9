"""The judgement of a host key, apart from where the known keys come from."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from dflash_supervise.link import ssh_config
from dflash_supervise.link.host_keys import HostKey, KnownKeys, append, check

CONFIG = ssh_config._host_config("box", ssh_config._parse("hostname h\nport 2222\nuser me\n"), None)
OLD, NEW = HostKey("ssh-ed25519", b"old"), HostKey("ssh-ed25519", b"new")
RSA = HostKey("ssh-rsa", b"rsa")


def known(
    *trusted: HostKey, bare: tuple[HostKey, ...] = (), revoked: tuple[HostKey, ...] = (), authority: bool = False
) -> KnownKeys:
    return KnownKeys(trusted, bare, revoked, authority, "/known_hosts")


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        (known(NEW), None),
        (known(OLD, NEW), None),
        (known(RSA, NEW), None),
        (known(bare=(NEW,)), None),
        (known(), "host_key_unknown"),
        (known(bare=(OLD,)), "host_key_unknown"),  # a name without its port says nothing about this port
        (known(OLD), "host_key_changed"),
        (known(RSA), "host_key_changed"),  # it was asked for the type that is known, and showed another
        (known(NEW, revoked=(NEW,)), "host_key_revoked"),
        (known(revoked=(OLD,)), "host_key_unknown"),
        (known(authority=True), "ssh_config"),
        (known(NEW, authority=True), None),
    ],
)
def test_a_key_is_trusted_only_when_it_is_known_and_not_revoked(keys: KnownKeys, code: str | None) -> None:
    wrong = check(CONFIG, keys, NEW)
    assert (wrong.code if wrong else None) == code
    if wrong is not None:
        assert NEW.fingerprint in wrong.message and wrong.needs_person and wrong.exit_code == 5


def test_the_fingerprint_is_the_one_that_ssh_prints() -> None:
    # ssh-keygen -lf of a file with this key.
    key = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    want = "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA"
    assert HostKey("ssh-ed25519", base64.b64decode(key)).fingerprint == want


def test_accepting_a_key_appends_to_a_private_file_and_keeps_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "state" / "known_hosts"
    append(file, "[h]:2222", OLD)
    file.write_text(file.read_text() + "@weird line kept\n")
    append(file, "other", NEW)
    assert file.read_text() == "[h]:2222 ssh-ed25519 b2xk\n@weird line kept\nother ssh-ed25519 bmV3\n"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
