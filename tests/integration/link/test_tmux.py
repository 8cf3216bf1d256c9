"""Real tmux, driven by libtmux over the link."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import libtmux
import pytest

from dflash_supervise.link import HostLink, HostTarget, LinkError, start_session
from dflash_supervise.link.remote_tmux import session_name
from tests.conftest import Laboratory
from tests.integration.link.harness import WAIT_S, until

RUN = f"demo-2601010000-{secrets.token_hex(2)}"


def has_session(server: libtmux.Server, run_id: str) -> bool:
    return server.cmd("has-session", "-t", f"={session_name(run_id)}").returncode == 0


@pytest.fixture(params=["gpubox", "here"])
def link(request: pytest.FixtureRequest, open_link: Callable[..., HostLink]) -> HostLink:
    target = request.getfixturevalue(request.param)
    assert isinstance(target, HostTarget)
    link = open_link(target)
    link.wait_ready(WAIT_S)
    return link


def words_of_pane(workspace: Path) -> list[str]:
    path = workspace / "words"
    return path.read_text().split("\0")[:-1] if path.exists() else []


def writer(workspace: Path, *words: str) -> list[str]:
    """A command that writes down the words it got."""
    script = workspace / "writer.sh"
    script.write_text('for word; do printf "%s\\0" "$word"; done > words.part; mv words.part words\n')
    return ["/bin/sh", str(script), *words]


def test_a_session_starts_with_its_words_untouched_by_any_shell(link: HostLink, workspace: Path) -> None:
    odd = ["a b", "$HOME", "#{pid}", "*", "it's", '"', "end;", ";", "\\;", "~", "-x", "!", "%1", ""]
    started = start_session(link.tmux(), RUN, writer(workspace, *odd), cwd=str(workspace))
    assert (started.status, started.name) == ("started", f"dflash-{RUN}")
    until(lambda: words_of_pane(workspace) == odd)


def test_a_second_start_says_so_and_changes_nothing(link: HostLink, workspace: Path) -> None:
    server = link.tmux()
    assert start_session(server, RUN, ["/bin/sleep", "1000"]).status == "started"
    pane = server.sessions.get(session_name=f"dflash-{RUN}")
    assert pane is not None
    before = pane.active_pane.pane_pid if pane.active_pane else None
    assert start_session(server, RUN, ["/bin/sleep", "1000"]).status == "already_there"
    again = server.sessions.get(session_name=f"dflash-{RUN}")
    assert again is not None and again.active_pane is not None and again.active_pane.pane_pid == before


def test_a_pane_that_ends_at_once_stays_to_be_read(link: HostLink, workspace: Path) -> None:
    server = link.tmux()
    assert start_session(server, RUN, ["/bin/sh", "-c", "echo last words; exit 7"]).status == "started"

    def last_words() -> bool:
        session = server.sessions.get(session_name=f"dflash-{RUN}")
        pane = session.active_pane if session else None
        return pane is not None and pane.pane_dead == "1" and "last words" in pane.capture_pane(start="-")

    until(last_words)
    assert has_session(server, RUN)


def test_a_pane_that_has_ended_is_started_again_in_its_session(link: HostLink, workspace: Path) -> None:
    server = link.tmux()
    assert start_session(server, RUN, ["/bin/sh", "-c", "exit 2"]).status == "started"
    until(lambda: server.cmd("display-message", "-p", "-t", f"=dflash-{RUN}:", "#{pane_dead}").stdout == ["1"])
    odd = ["a b", "end;", "#{pid}"]
    assert start_session(server, RUN, writer(workspace, *odd), cwd=str(workspace)).status == "started"
    until(lambda: words_of_pane(workspace) == odd)
    assert len(server.sessions) == 1


def test_the_server_is_our_own_and_closed_to_the_clipboard(link: HostLink, laboratory: Laboratory) -> None:
    for home in (laboratory.host_home, laboratory.home):
        (home / ".tmux.conf").write_text("set -g set-clipboard on\nset -g remain-on-exit off\n")
    server = link.tmux()
    start_session(server, RUN, ["/bin/sleep", "1000"])
    assert server.socket_name == f"dflash-{os.getuid()}"
    assert server.cmd("show-options", "-sv", "set-clipboard").stdout == ["off"]
    assert server.cmd("show-options", "-sv", "exit-empty").stdout == ["off"]
    assert server.cmd("show-options", "-gwv", "allow-passthrough").stdout in (["off"], [])


def test_a_session_that_nobody_started_is_not_there(link: HostLink) -> None:
    assert has_session(link.tmux(), RUN) is False
    start_session(link.tmux(), RUN, ["/bin/sleep", "1000"])
    assert has_session(link.tmux(), RUN) is True
    assert has_session(link.tmux(), RUN[:-1]) is False


def test_names_beyond_ascii_survive_the_way(link: HostLink) -> None:
    server = link.tmux()
    start_session(server, RUN, ["/bin/sleep", "1000"])
    session = server.sessions.get(session_name=f"dflash-{RUN}")
    assert session is not None
    session.active_window.rename_window("gr\u00fc\u00dfe \u2713")
    found = server.sessions.get(session_name=f"dflash-{RUN}")
    assert found is not None and found.active_window.window_name == "gr\u00fc\u00dfe \u2713"


def test_a_host_without_tmux_says_so(
    start_sshd: Callable[..., object],
    here: HostTarget,
    open_link: Callable[..., HostLink],
    laboratory: Laboratory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    link = open_link(here)
    link.wait_ready(WAIT_S)
    assert start_session(link.tmux(), RUN, ["/bin/sleep", "1000"]).status == "no_tmux"
    with pytest.raises(libtmux.exc.TmuxCommandNotFound):
        has_session(link.tmux(), RUN)


def test_a_lost_link_is_a_link_error_and_not_an_empty_server(link: HostLink) -> None:
    server = link.tmux()
    link.close()
    with pytest.raises(LinkError):
        has_session(server, RUN)


def test_local_libtmux_goes_on_as_before(link: HostLink, laboratory: Laboratory) -> None:
    link.tmux()
    own = libtmux.Server(socket_name="mine")
    session = own.new_session(session_name="plain", window_command="sleep 1000")
    assert own.has_session("plain")
    session.kill()


@pytest.mark.parametrize(("run_id", "argv"), [("a.b", ["a", "b"]), ("$1", ["a", "b"]), ("ok", ["a"])])
def test_what_tmux_would_misread_is_refused(link: HostLink, run_id: str, argv: list[str]) -> None:
    with pytest.raises(ValueError, match="tmux"):
        start_session(link.tmux(), run_id, argv)
