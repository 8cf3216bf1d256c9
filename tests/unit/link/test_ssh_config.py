"""What `ssh -G` prints, read into what the link does."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_supervise.link import ssh_config
from dflash_supervise.link.errors import ConfigRefused
from dflash_supervise.link.ssh_config import Hop, HostConfig


def read(text: str, host: str = "box", auth_sock: str | None = None) -> HostConfig:
    base = "hostname 10.0.0.7\nport 22\nuser me\n"
    return ssh_config._host_config(host, ssh_config._parse(base + text), auth_sock)


def test_a_plain_host_is_known_by_its_hostname() -> None:
    config = read("")
    assert (config.known_as, config.known_as_bare, config.jumps, config.proxy_command) == ("10.0.0.7", None, (), None)


def test_another_port_is_part_of_the_name_and_the_bare_name_counts_too() -> None:
    config = ssh_config._host_config("box", ssh_config._parse("hostname h\nport 2222\nuser me\n"), None)
    assert (config.known_as, config.known_as_bare) == ("[h]:2222", "h")


def test_an_alias_for_the_host_key_replaces_name_and_port() -> None:
    said = ssh_config._parse("hostname h\nport 2222\nuser me\nhostkeyalias farm\n")
    config = ssh_config._host_config("box", said, None)
    assert (config.known_as, config.known_as_bare) == ("farm", None)


def test_tokens_of_a_proxy_command_are_expanded() -> None:
    config = read("proxycommand nc -x %n %h %p %% %r\n")
    assert config.proxy_command == "nc -x box 10.0.0.7 22 % me"


def test_a_token_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ConfigRefused, match="%Z"):
        read("proxycommand nc %Z\n")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("none", ()),
        ("jump", (Hop("jump"),)),
        ("a@one:2222,two", (Hop("one", "a", 2222), Hop("two"))),
        ("ssh://a@one:2222", (Hop("one", "a", 2222),)),
        ("a@[::1]:22", (Hop("::1", "a", 22),)),
    ],
)
def test_jump_hosts_are_read_in_order(text: str, want: tuple[Hop, ...]) -> None:
    assert read(f"proxyjump {text}\n").jumps == want


def test_identity_files_keep_their_order_and_home_is_that_of_the_user_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/elsewhere")
    config = read("identityfile ~/.ssh/one\nidentityfile %d/two\nidentityfile /three\nidentityfile none\n")
    home = ssh_config.home()
    assert config.identity_files == (home / ".ssh/one", home / "two", Path("/three"))
    assert not str(home).startswith("/elsewhere")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "/env.sock"),
        ("identityagent SSH_AUTH_SOCK\n", "/env.sock"),
        ("identityagent none\n", None),
        ("identityagent $OTHER_SOCK\n", "/other.sock"),
        ("identityagent ${OTHER_SOCK}\n", "/other.sock"),
        ("identityagent /run/%u.sock\n", "/run/tester.sock"),
    ],
)
def test_the_agent_is_the_one_that_the_configuration_names(
    monkeypatch: pytest.MonkeyPatch, text: str, want: str | None
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/env.sock")
    monkeypatch.setenv("OTHER_SOCK", "/other.sock")
    monkeypatch.setenv("LOGNAME", "tester")
    assert read(text).identity_agent == want


def test_the_links_own_agent_socket_stands_in_for_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/env.sock")
    assert read("", auth_sock="/start.sock").identity_agent == "/start.sock"
