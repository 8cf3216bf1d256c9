"""A sink that keeps what it gets, and the stand-in behind the stream."""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.link import Follow, HostLink, LinkError
from dflash_supervise.link.bundle import Bundle, pack
from tests.conftest import Laboratory
from tests.lab.processes import wait_until
from tests.lab.sshd import Sshd

WAIT_S = 40.0


def stand_in() -> Bundle:
    return pack("agent", {"__main__.py": (Path(__file__).parent / "stand_in_main.py").read_bytes()})


class Sink:
    """Keeps every line, as a store would, and gives the cursor of what it has."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.follows: list[Follow] = []
        self.refuse_next = 0
        self._lock = threading.Lock()

    def __call__(self, host_key: str, line: dict[str, Any]) -> None:
        with self._lock:
            if line["t"] == "rec" and self.refuse_next:
                self.refuse_next -= 1
                raise OSError("the store is full")
            self.lines.append((host_key, line))

    def cursors(self) -> Sequence[Follow]:
        records = self.of("rec")
        cursor = {key: records[-1]["rec"][key] for key in ("epoch", "seq")} if records else None
        log = {"attempt": 1, "offset": len(self.log())}
        return [Follow(follow.run_id, follow.workspace, cursor, log) for follow in self.follows]

    def of(self, kind: str) -> list[dict[str, Any]]:
        with self._lock:
            return [line for _, line in self.lines if line["t"] == kind]

    def seqs(self) -> list[int]:
        return [line["rec"]["seq"] for line in self.of("rec")]

    def log(self) -> bytes:
        data = b""
        for line in self.of("log"):
            assert line["offset"] == len(data)
            data += base64.b64decode(line["data"])
        return data

    def statuses(self) -> list[str]:
        return [line["status"] for line in self.of("link")]

    def errors(self) -> list[str]:
        return [line["error"]["code"] for line in self.of("link") if line["error"]]


def until(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, WAIT_S)


def agents(laboratory: Laboratory) -> list[str]:
    return [str(p) for p in laboratory.leftovers() if "follow" in p.argv]


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
