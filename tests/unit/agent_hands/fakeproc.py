"""A /proc of plain files: processes are added, ended and renumbered at will."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

HZ = os.sysconf("SC_CLK_TCK")


@dataclass
class FakeProc:
    """``root`` is what the agent takes for /proc. Start times are in seconds; ``now_s`` of a scan is the test's."""

    root: Path

    def __post_init__(self) -> None:
        boot = self.root / "sys/kernel/random"
        boot.mkdir(parents=True)
        (boot / "boot_id").write_text("boot-1\n")

    def add(
        self,
        pid: int,
        *,
        ppid: int = 1,
        sid: int | None = None,
        tty: int = 0,
        state: str = "S",
        comm: str = "python",
        start_s: float = 100.0,
        env: dict[str, str] | None = None,
        flags: int = 0,
    ) -> tuple[int, int]:
        """Returns the process's key (pid, start_ticks)."""
        folder = self.root / str(pid)
        fresh = self.root / f"new-{pid}"  # beside the old one, so that it has another inode, as in /proc
        fresh.mkdir()
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
        start = int(start_s * HZ)
        sid = pid if sid is None else sid
        stat = [state, ppid, sid, sid, tty, -1, flags, *[0] * 4, 10 * HZ, 5 * HZ, 0, 0, 20, 0, 3, 0, start, 1 << 20, 25]
        (folder / "stat").write_text(f"{pid} ({comm}) " + " ".join(map(str, stat)) + "\n")
        (folder / "environ").write_bytes(b"\0".join(f"{k}={v}".encode() for k, v in (env or {}).items()) + b"\0")
        (folder / "status").write_text("Name:\tx\nTracerPid:\t0\nSigCgt:\t0000000000000000\n")
        (folder / "cmdline").write_bytes(comm.encode() + b"\0")
        return pid, start

    def end(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))


def token(run: str = "run-a", attempt: int = 1, workspace: str = "/ws") -> dict[str, str]:
    return {
        "PATH": "/bin",
        "DFLASH_RUN": f"{run}:{attempt}",
        "DFLASH_ATTEMPT_DIR": f"{workspace}/.dflash/runs/{run}/attempts/{attempt}",
    }
