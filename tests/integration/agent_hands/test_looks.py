"""Stack samples and socket counters of real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash_supervise.agent.proc import read_stat, start_ticks
from dflash_supervise.agent.sockets import moved_bytes
from dflash_supervise.agent.stacks import Sampler
from dflash_supervise.core.facts import Missing, StacksReading
from tests.integration.agent_hands.bench import until

ANSWERING = """
import faulthandler, signal, sys, threading, time, queue
faulthandler.register(signal.SIGUSR1, open(sys.argv[1] + "/stacks.txt", "a"))
def loader(): queue.Queue().get()
def stand(): time.sleep(600)
threading.Thread(target=loader, daemon=True).start()
open(sys.argv[1] + "/up", "w").close()
stand()
"""


def test_two_samples_of_a_stuck_process_are_equal_and_name_its_frames(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ANSWERING, str(tmp_path)])
    until((tmp_path / "up").exists, "the process is up")
    started = start_ticks(process.pid)
    assert started is not None
    sampler = Sampler(str(tmp_path), process.pid, started)
    assert isinstance(sampler.reading(), Missing)
    assert sampler.take(1.0) and sampler.take(31.0)
    reading = sampler.reading()
    assert isinstance(reading, StacksReading)
    first, second = reading.samples
    assert first.digest == second.digest and (first.at_s, second.at_s) == (1.0, 31.0)
    assert any("stand (<string>:5)" in line for line in second.summary)
    assert any("loader (<string>:4)" in line for line in second.summary)
    assert sampler.newest_text.count("most recent call first") == 2
    process.kill()
    process.wait()
    assert sampler.take(61.0) is False and reading == sampler.reading()


def test_a_process_without_a_handler_is_never_signalled(tmp_path: Path) -> None:
    source = "import time; print('up', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    started = start_ticks(process.pid)
    assert started is not None
    sampler = Sampler(str(tmp_path), process.pid, started)
    assert sampler.sample(1.0)
    until(lambda: "handler" in getattr(sampler.reading(), "reason", ""), "the reason is told")
    stat = read_stat(process.pid)
    assert stat is not None and stat.alive and process.poll() is None
    process.send_signal(signal.SIGUSR1)  # it would have ended it
    assert process.wait(20) == -signal.SIGUSR1
    process.stdout.close()


def test_bytes_on_the_sets_sockets_are_seen_to_move_and_to_stand(tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    source = (
        "import socket, sys\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\nwhile s.recv(65536): pass\n"
    )
    process = subprocess.Popen([sys.executable, "-c", source, str(server.getsockname()[1])])
    connection, _ = server.accept()
    until(lambda: moved_bytes([process.pid]) is not None, "the kernel answers")
    before = moved_bytes([process.pid])
    assert before is not None and before == moved_bytes([process.pid])
    connection.sendall(b"x" * 100_000)
    until(lambda: moved_bytes([process.pid]) == before + 100_000, "the bytes are counted")
    connection.close()
    assert process.wait(20) == 0
    server.close()


def test_a_set_without_connections_moves_nothing_and_a_gone_process_is_no_riddle() -> None:
    process = subprocess.Popen(["sleep", "600"])
    assert moved_bytes([process.pid]) == 0
    process.kill()
    process.wait()
    assert moved_bytes([process.pid]) == 0


def test_counters_of_many_sockets_come_in_one_look() -> None:
    """The kernel's dump of some hundred sockets spans several messages."""
    with _talking_pair() as (process, connections):
        before = moved_bytes([process.pid])
        for one in connections:
            one.sendall(b"x" * 10)
        until(lambda: moved_bytes([process.pid]) == (before or 0) + 200 * 10, "all bytes are counted")


def test_what_the_processes_of_a_set_tell_each_other_is_no_news() -> None:
    with _talking_pair() as (process, connections):
        mine = {os.getpid(), process.pid}
        before = moved_bytes(mine)
        for one in connections:
            one.sendall(b"x" * 10)
        until(lambda: (moved_bytes([process.pid]) or 0) >= 200 * 10, "the bytes have arrived")
        assert moved_bytes(mine) == before


@contextmanager
def _talking_pair() -> Iterator[tuple[subprocess.Popen[bytes], list[socket.socket]]]:
    """A process that reads from 200 connections, half of them IPv4 in an IPv6 socket, and our ends of them."""
    source = (
        "import socket, sys; v4, v6 = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(100)],"
        " [socket.socket(socket.AF_INET6) for _ in range(100)]\n"
        "for one in v6: one.connect(('::ffff:127.0.0.1', int(sys.argv[1])))\n"
        "for one in (*v4, *v6): one.recv(10)\n"
        "v4[0].recv(10)"
    )
    with socket.create_server(("127.0.0.1", 0), backlog=300) as server:
        process = subprocess.Popen([sys.executable, "-c", source, str(server.getsockname()[1])])
        connections = [server.accept()[0] for _ in range(200)]
    try:
        yield process, connections
    finally:
        for one in connections:
            one.close()
        process.kill()
        process.wait()
