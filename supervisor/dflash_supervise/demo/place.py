"""A corner of this machine for one demo: its folders, its environment, its port, and the proof that nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dflash_supervise.config.load import ENV_PREFIX, load

DASHBOARD_PORT = 8000
_POLL_S = 0.2


@dataclass(frozen=True)
class Place:
    """Folders of one demo; all lie below root."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def runtime(self) -> Path:
        return self.root / "run"


@dataclass(frozen=True)
class Left:
    """A process of the demo; pid and start time name it for ever."""

    pid: int
    start_ticks: int
    comm: str


def make() -> Place:
    """New empty folders, readable by this user alone.

    They lie in /tmp whatever TMPDIR says: the path of a tmux socket may have 107 bytes.
    """
    place = Place(Path(tempfile.mkdtemp(prefix="dflash-demo-", dir="/tmp")))
    for folder in (place.state, place.workspace, place.runtime):
        folder.mkdir(mode=0o700)
    return place


def environment(place: Place, config: Path, port: int) -> dict[str, str]:
    """What the demo's own processes have in their environment; no other configuration of the user's reaches them."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DFLASH_", "TMUX"))}
    return {
        **kept,
        "DFLASH_SUPERVISE_CONFIG": str(config),
        "DFLASH_SUPERVISE_STATE_DIR": str(place.state),
        "DFLASH_SUPERVISE_DAEMON_PORT": str(port),
        "XDG_RUNTIME_DIR": str(place.runtime),
        "TMUX_TMPDIR": str(place.runtime),
        "OMP_NUM_THREADS": "1",
    }


def wanted_port(environ: Mapping[str, str]) -> int | None:
    """The dashboard's port as the environment says it: the one setting of the user's that reaches the demo.

    Raises:
        ConfigError: it is no port.
    """
    name = ENV_PREFIX + "DAEMON_PORT"
    return load(files=(), environ={name: environ[name]}).daemon.port if name in environ else None


def free_port() -> int:
    """8000 when nobody listens there, else any free one."""
    for port in (DASHBOARD_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port of 127.0.0.1 is free")


def processes(place: Place) -> list[Left]:
    """Every process that carries this place in its environment, other than this one."""
    mark = f"XDG_RUNTIME_DIR={place.runtime}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        left = _read(entry, mark)
        if left is not None:
            found.append(left)
    return found


def end(place: Place, *, patience_s: float, environ: Mapping[str, str]) -> list[Left]:
    """End the tmux server, give everything else time to end by itself, then make it.

    Returns what had to be made to end; an empty list is the proof that the demo leaves nothing by itself.
    """
    socket_name = f"dflash-{os.getuid()}"
    try:
        subprocess.run(["tmux", "-L", socket_name, "kill-server"], env=dict(environ), capture_output=True, check=False)
    except FileNotFoundError:
        pass  # without tmux there is no server
    if _gone(place, patience_s):
        return []
    stubborn: dict[tuple[int, int], Left] = {}
    # A keeper brings its agent back: one that is killed may have had a child in the meantime.
    for _ in range(20):
        living = processes(place)
        for left in living:
            stubborn.setdefault((left.pid, left.start_ticks), left)
            _kill(left)
        if not living or _gone(place, 0.5):
            break
    return list(stubborn.values())


def _gone(place: Place, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while processes(place):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _read(entry: Path, mark: bytes) -> Left | None:
    """None for a process of somebody else, a zombie, and one that is gone by now."""
    try:
        if mark not in (entry / "environ").read_bytes().split(b"\0"):
            return None
        head, _, tail = (entry / "stat").read_text().rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    if fields[0] in ("Z", "X"):
        return None
    return Left(int(entry.name), int(fields[19]), head.partition("(")[2])


def _kill(left: Left) -> None:
    """SIGKILL, after one more look that it is still the same process."""
    try:
        tail = Path(f"/proc/{left.pid}/stat").read_text().rpartition(")")[2]
        if int(tail.split()[19]) == left.start_ticks:
            os.kill(left.pid, signal.SIGKILL)
    except OSError:
        pass  # it has ended by itself
