"""Brings a daemon up in the background for the command line. Imports nothing heavy: every verb may pass here."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from dflash_supervise.config import Settings
from dflash_supervise.daemon import identity

START_S = 60.0
_LOOK_S = 0.1
_SAID_BYTES = 4096


class NotStarted(RuntimeError):
    """The daemon did not come up; the text is what it said."""

    exit_code = 7


def running(settings: Settings) -> dict[str, Any] | None:
    """The daemon's file if it is alive and answers, else None."""
    facts = identity.read_daemon_file(settings)
    return facts if facts is not None and _healthy(settings, int(facts["port"])) else None


def ensure_running(settings: Settings) -> dict[str, Any]:
    """The running daemon's {pid, start, port, url, version}; one is started in its own session if there is none.

    Raises:
        NotStarted: it ended at once or was not ready in time.
    """
    found = running(settings)
    if found is not None:
        return found
    identity.private_dir(settings.state_dir)
    said = settings.state_dir / "daemon.out"
    with os.fdopen(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "dflash_supervise.daemon"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(settings),
            cwd="/",
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = running(settings)
        if found is not None:
            return found
        if child.poll() is not None:
            # Somebody else may have been faster: then theirs is the one.
            found = running(settings)
            if found is not None:
                return found
            raise NotStarted(f"the daemon ended with {child.returncode}: {_said(said)}")
        time.sleep(_LOOK_S)
    raise NotStarted(f"the daemon was not ready within {START_S:.0f} s; its log: {settings.log_file}")


def environment(settings: Settings) -> dict[str, str]:
    """Ours, with what the daemon could not find by itself: the files that were read, and what flags said."""
    return {
        **os.environ,
        "DFLASH_SUPERVISE_FILES": os.pathsep.join(str(Path(name).absolute()) for name in settings.files),
        "DFLASH_SUPERVISE_STATE_DIR": str(settings.state_dir.absolute()),
        "DFLASH_SUPERVISE_DAEMON_HOST": settings.daemon.host,
        "DFLASH_SUPERVISE_DAEMON_PORT": str(settings.daemon.port),
    }


def _healthy(settings: Settings, port: int) -> bool:
    host = settings.daemon.host if settings.daemon.host not in ("0.0.0.0", "::") else "127.0.0.1"
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/healthz", headers={"Host": f"127.0.0.1:{port}"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _said(path: Path) -> str:
    return path.read_bytes()[-_SAID_BYTES:].decode("utf-8", "replace").strip() or "it said nothing"
