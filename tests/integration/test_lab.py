"""The laboratory itself: a host over SSH, its network, and the look at leftovers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Laboratory, end_everything
from tests.fakes.gpus import FakeGpus
from tests.lab import processes
from tests.lab.relay import Relay
from tests.lab.sshd import Sshd


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets, until its client hangs up."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve(conn: socket.socket) -> None:
        with conn:
            try:
                while data := conn.recv(65536):
                    conn.sendall(data)
            except ConnectionError:
                return

    def accept() -> None:
        while True:
            try:
                conn, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(conn,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


@pytest.fixture
def relay(echo_port: int) -> Iterator[Relay]:
    relay = Relay(echo_port)
    yield relay
    relay.close()


def dial(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.port), timeout=10)


def test_the_relay_carries_more_than_its_buffers_hold(relay: Relay) -> None:
    sent = os.urandom(4 << 20)

    def send(sock: socket.socket) -> None:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)

    with dial(relay) as sock:
        writer = threading.Thread(target=send, args=(sock,))
        writer.start()
        got = bytearray()
        while data := sock.recv(65536):
            got += data
        writer.join()
    assert bytes(got) == sent


def test_in_the_dark_nothing_passes_and_afterwards_everything_does(relay: Relay) -> None:
    with dial(relay) as sock:
        sock.sendall(b"before")
        assert sock.recv(6) == b"before"
        relay.dark()
        sock.sendall(b"meanwhile")
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        with dial(relay) as newcomer:
            newcomer.sendall(b"hello")
            newcomer.settimeout(0.3)
            with pytest.raises(TimeoutError):
                newcomer.recv(1)
            relay.restore()
            newcomer.settimeout(10)
            assert newcomer.recv(5) == b"hello"
        sock.settimeout(10)
        assert sock.recv(9) == b"meanwhile"


def test_a_cut_resets_what_was_connected_and_serves_what_comes_next(relay: Relay) -> None:
    with dial(relay) as sock:
        sock.sendall(b"x")
        sock.recv(1)
        relay.cut()
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    with dial(relay) as sock:
        sock.sendall(b"y")
        assert sock.recv(1) == b"y"


def test_ssh_reaches_the_host_by_its_alias_with_the_hosts_environment(
    sshd: Sshd, fake_gpus: FakeGpus, laboratory: Laboratory
) -> None:
    got = subprocess.run(
        ["ssh", "gpubox", "echo $HOME; echo $FAKE_NVML_STATE; echo $XDG_RUNTIME_DIR"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert got.stdout.split() == [
        str(laboratory.host_home),
        str(fake_gpus.state_file),
        str(laboratory.host_home / "run"),
    ]


def test_ssh_g_shows_where_the_alias_points(sshd: Sshd) -> None:
    got = subprocess.run(["ssh", "-G", "gpubox"], capture_output=True, text=True, check=True, timeout=60)
    lines = got.stdout.splitlines()
    assert f"port {sshd.port}" in lines
    assert f"userknownhostsfile {sshd.known_hosts}" in lines
    assert "stricthostkeychecking true" in lines


def test_the_host_needs_our_key_and_the_client_knows_the_hosts_key(sshd: Sshd) -> None:
    stranger = ["ssh", "-F", "/dev/null", "-p", str(sshd.port), "-o", "BatchMode=yes"]
    stranger += ["-o", f"UserKnownHostsFile={sshd.known_hosts}", f"{sshd.user}@127.0.0.1", "true"]
    refused = subprocess.run(stranger, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr
    sshd.change_host_key()
    changed = sshd.run("true")
    assert changed.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in changed.stderr


def test_a_session_survives_silence_and_dies_of_a_cut(sshd: Sshd) -> None:
    client = subprocess.Popen(["ssh", "gpubox", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    try:
        client.stdin.write(b"one\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"one\n"
        sshd.cut(0.5, reset=False)
        client.stdin.write(b"two\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"two\n"
        sshd.cut(0.5)
        assert client.wait(timeout=30) == 255
        assert sshd.run("echo back").stdout == "back\n"
    finally:
        client.kill()
        client.wait()
        client.stdin.close()
        client.stdout.close()


def test_one_session_a_connection_can_be_enforced(start_sshd: Callable[..., Sshd]) -> None:
    host = start_sshd(max_sessions=1)
    assert "MaxSessions 1" in (host.folder / "sshd_config").read_text()
    assert host.run("echo one").stdout == "one\n"


def test_nothing_of_the_user_shines_through(isolated_home: Path, laboratory: Laboratory) -> None:
    assert Path.home() == isolated_home
    assert "SSH_AUTH_SOCK" not in os.environ
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "TMUX_TMPDIR"):
        assert Path(os.environ[name]).is_relative_to(laboratory.root)
    assert (isolated_home / "run").stat().st_mode & 0o777 == 0o700


def test_a_detached_process_with_a_scrubbed_environment_is_found_by_its_folder(
    laboratory: Laboratory, workspace: Path
) -> None:
    script = f"import time; open({str(workspace / 'up')!r}, 'w'); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", script], env={}, start_new_session=True)
    assert processes.wait_until((workspace / "up").exists, 30)
    assert child.pid in [process.pid for process in laboratory.leftovers()]
    child.kill()
    child.wait()
    assert laboratory.leftovers() == []


def test_what_is_left_is_killed_and_named_and_bystanders_are_spared(laboratory: Laboratory) -> None:
    bystander = subprocess.Popen(["sleep", "60"], env={})
    left = subprocess.Popen(["sleep", "61"], start_new_session=True)
    try:
        assert ["sleep", "61"] in [list(process.argv) for process in end_everything(laboratory)]
        assert left.wait(timeout=30) == -9
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_tmux_server_and_its_pane_end_without_a_complaint(laboratory: Laboratory) -> None:
    subprocess.run(
        ["tmux", "-L", "lab", "-f", "/dev/null", "new-session", "-d", "-s", "x", "sleep 60"],
        check=True,
        timeout=60,
    )
    # A pane is a second server until its exec.
    assert processes.wait_until(lambda: len(laboratory.tmux_servers()) == 1, 20.0)
    assert end_everything(laboratory) == []
    assert laboratory.tmux_servers() == []


def test_a_signal_is_not_sent_to_a_pid_that_was_given_away(laboratory: Laboratory) -> None:
    child = subprocess.Popen(["sleep", "60"])
    process = processes.look(child.pid)
    assert process is not None
    earlier = processes.Process(**{**process.__dict__, "start_ticks": process.start_ticks - 1})
    assert not processes.send(earlier)
    assert child.poll() is None
    assert processes.send(process)
    assert child.wait(timeout=30) == -9
