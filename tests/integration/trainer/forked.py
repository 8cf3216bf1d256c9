"""A trainer process that is forked from a server with torch in it.

An import of torch costs two seconds of a core, and these tests start half a hundred trainers. What is forked has run
nothing of the trainer yet; from there on it is what ``python -m dflash_trainer`` is.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["dflash_trainer.app", "torch._dynamo"])


def start_server() -> None:
    """Before the first test, or it would belong to that test and be left by it."""
    multiprocessing.forkserver.ensure_running()


class ForkedTrainer:
    """What the tests use of ``subprocess.Popen``, on a forked process."""

    def __init__(self, argv: list[str], env: dict[str, str], folder: Path, log_file: Path, *, group: bool) -> None:
        self._process = _SERVER.Process(target=_become, args=(argv, env, folder, log_file, group))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.args = argv

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the signal; None while it lives."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become(argv: list[str], env: dict[str, str], folder: Path, log_file: Path, group: bool) -> None:
    if group:
        os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    out = os.open(log_file, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(out, number)
    os.close(out)
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    faulthandler.enable()
    sys.argv = ["dflash_trainer", *argv]
    runpy.run_module("dflash_trainer", run_name="__main__", alter_sys=True)
