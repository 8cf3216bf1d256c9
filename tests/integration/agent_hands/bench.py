"""A run of the hands alone: a workspace, a runtime folder, keepers launched as the agent launches them."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dflash_supervise
from dflash_supervise.agent.launch import launch
from dflash_supervise.agent.proc import is_alive, read_stat, signal_process
from dflash_supervise.agent.runtime import Runtime, boottime_s

SOURCE = Path(dflash_supervise.__file__).parent
PATIENCE_S = 20.0
NASTY = Path(__file__).parent / "nasty.py"
# Stands in for the agent: takes the run's lock as the agent does, says where it lives, and stays.
STAND_IN = """
import fcntl, os, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if sys.argv[1] == "keep":
    from dflash_supervise.agent import keep
    sys.exit(keep.main(sys.argv[2:]))
run = os.path.basename(sys.argv[2])
folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "dflash", "runs", run)
lock = open(os.path.join(folder, "agent.lock"), "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
with open(os.path.join(folder, "stand-in.pid"), "a") as file:
    file.write("%d\\n" % os.getpid())
time.sleep(600)
"""


@dataclass
class Bench:
    """One run in its own workspace."""

    root: Path
    # Its processes are known by it, and those of a bench in another test run beside it are none of them.
    run_id: str = field(default_factory=lambda: f"bench-2601010000-{secrets.token_hex(2)}")
    runtime: Runtime = field(init=False)
    agent_dir: Path = field(init=False)

    def __post_init__(self) -> None:
        runtime_base = self.root / "rt"
        runtime_base.mkdir(mode=0o700)
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime_base)}
        self.runtime = Runtime.open(self.environ)
        self.agent_dir = self.root / "agent"
        self.agent_dir.mkdir()
        (self.agent_dir / "__main__.py").write_text(STAND_IN)
        (self.agent_dir / "dflash_supervise").symlink_to(SOURCE)
        self.run_dir.mkdir(parents=True, mode=0o700)
        self.hold_agent_lock()

    @property
    def workspace(self) -> Path:
        return self.root / "ws"

    @property
    def run_dir(self) -> Path:
        return self.workspace / ".dflash" / "runs" / self.run_id

    @property
    def agent_command(self) -> tuple[str, ...]:
        return (sys.executable, "-IS", str(self.agent_dir))

    def hold_agent_lock(self) -> None:
        """The test itself counts as the run's agent, so that no keeper starts one."""
        self.runtime.run(self.run_id)
        self._lock = open(self.runtime.agent_lock(self.run_id), "w")  # noqa: SIM115 - held for the test
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def let_agent_lock_go(self) -> None:
        self._lock.close()

    def context(self, argv: Sequence[str], *, env: dict[str, str] | None = None, cwd: str | None = None) -> None:
        """Freeze the command. The environment is PATH alone unless told otherwise."""
        content = {
            "argv": list(argv),
            "cwd": cwd or str(self.workspace),
            "env": {"PATH": os.environ["PATH"]} if env is None else env,
            "umask": 0o027,
        }
        path = Path(self.runtime.context_path(self.run_id))
        path.write_text(json.dumps(content))
        path.chmod(0o600)

    def python(self, source: str, *words: str, env: dict[str, str] | None = None) -> None:
        self.context([sys.executable, "-c", source, *words], env=env)

    def launch(self, number: int = 1, *, gpus: tuple[str, ...] | None = None, failpoint: str | None = None) -> int:
        if failpoint is not None:
            Path(self.runtime.options_path(self.run_id)).write_text(json.dumps({"failpoint": failpoint}))
        return launch(
            str(self.run_dir),
            number,
            "a test asked for it",
            runtime=self.runtime,
            gpus=gpus,
            agent_command=self.agent_command,
            now_s=boottime_s(),
            environ=self.environ,
        )

    def attempt(self, number: int = 1) -> Path:
        return self.run_dir / "attempts" / str(number)

    def child(self, number: int = 1) -> dict[str, Any]:
        return read(self.attempt(number) / "child.json")

    def exit(self, number: int = 1) -> dict[str, Any]:
        return read(self.attempt(number) / "exit.json")

    def log(self, number: int = 1) -> list[str]:
        try:
            return (self.attempt(number) / "train.log").read_text().splitlines()
        except FileNotFoundError:
            return []

    def wait_child(self, number: int = 1) -> dict[str, Any]:
        until(lambda: self.child(number), "a child is recorded")
        return self.child(number)

    def wait_exit(self, number: int = 1) -> dict[str, Any]:
        until(lambda: self.exit(number), "the end is recorded")
        return self.exit(number)

    def wait_line(self, text: str, number: int = 1) -> None:
        until(lambda: any(line.startswith(text) for line in self.log(number)), f"{text!r} in the log")

    def main_key(self, number: int = 1) -> tuple[int, int]:
        child = self.child(number)
        return child["pid"], child["start_ticks"]

    def keeper_key(self, number: int = 1) -> tuple[int, int]:
        child = self.child(number)
        return child["keeper_pid"], child["keeper_start_ticks"]

    def finish(self) -> None:
        """The run is over: every guardian leaves by itself, and is waited for."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        (self.run_dir / "final.json").write_text("{}")
        pid_file = Path(self.runtime.run(self.run_id)) / "stand-in.pid"
        keepers = [self.keeper_key(int(p.name)) for p in self.run_dir.glob("attempts/*") if self.child(int(p.name))]
        mains = [self.main_key(int(p.name)) for p in self.run_dir.glob("attempts/*") if self.child(int(p.name))]
        for key in mains:
            end(*key)
        # A guardian looks every two seconds and leaves; told to, it leaves at once.
        until(lambda: sum(signal_process(*key, signal.SIGTERM) for key in keepers) == 0, "the keepers have left")
        if pid_file.exists():
            for pid in map(int, pid_file.read_text().split()):
                stat = read_stat(pid)
                if stat is not None:
                    end(*stat.key)
        self._lock.close()


def read(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return value


def end(pid: int, start_ticks: int) -> None:
    """SIGKILL for one known process, and wait for it."""
    if is_alive(pid, start_ticks):
        signal_process(pid, start_ticks, 9)
        until(lambda: not is_alive(pid, start_ticks), f"pid {pid} is gone")


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {patience_s:.0f} s still not: {what}")
        time.sleep(0.02)
