"""The target grammar, and what importing the link costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dflash_supervise.link import HostTarget, parse_target


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("gpubox:/work", HostTarget("gpubox", "/work")),
        ("me@gpubox:/work", HostTarget("gpubox", "/work", user="me")),
        ("me@gpubox:2222:/work/a b", HostTarget("gpubox", "/work/a b", user="me", port=2222)),
        ("[::1]:/w", HostTarget("::1", "/w")),
        ("me@[fe80::1%eth0]:22:/w", HostTarget("fe80::1%eth0", "/w", user="me", port=22)),
        ("10.0.0.7:22:/w", HostTarget("10.0.0.7", "/w", port=22)),
        ("local:/home/me/w", HostTarget("local", "/home/me/w", local=True)),
        ("me@corp.example@gpubox:/w", None),
        ("gpubox:/w/../v//x/", HostTarget("gpubox", "/v/x")),
        ("gpubox:/a:/b", HostTarget("gpubox", "/a:/b")),
        ("gpubox:/", HostTarget("gpubox", "/")),
        ("gpubox", None),
        ("gpubox:work", None),
        (":/w", None),
        ("@gpubox:/w", None),
        ("::1:/w", None),
        ("gpubox:ssh:/w", None),
        ("gpubox:0:/w", None),
        ("gpubox:65536:/w", None),
        ("-oProxyCommand=evil:/w", None),
        ("-l@gpubox:/w", None),
        ("gpu box:/w", None),
        ("gpubox:/w\n", None),
        ("", None),
    ],
)
def test_a_target_is_read_as_written_or_refused(text: str, want: HostTarget | None) -> None:
    if want is None:
        with pytest.raises(ValueError, match="target"):
            parse_target(text)
    else:
        assert parse_target(text) == want


@pytest.mark.parametrize("text", ["gpubox:/work", "me@gpubox:2222:/work", "me@[::1]:22:/w", "local:/w"])
def test_a_target_prints_as_it_was_written(text: str) -> None:
    assert str(parse_target(text)) == text


def test_targets_on_one_host_share_a_key_and_other_users_do_not() -> None:
    keys = [parse_target(text).key for text in ("me@box:/a", "me@box:/b", "you@box:/a", "me@box:2222:/a", "box:/a")]
    assert keys == ["me@box", "me@box", "you@box", "me@box:2222", "box"]


@pytest.mark.parametrize("module", ["errors", "settings", "bundle"])
def test_the_light_parts_import_neither_paramiko_nor_libtmux(module: str) -> None:
    look = (
        f"import sys, dflash_supervise.link.{module}\n"
        "print([name for name in ('paramiko', 'libtmux', 'cryptography') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
