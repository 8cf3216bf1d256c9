"""The keeper: parent and witness of one attempt. ``python3 -IS <agentdir> keep RUN_DIR N [RUNTIME_DIR]``

It takes the locks, opens the log, forks the trainer behind a gate, records it, opens the gate, waits, and tells exactly
how it ended. Then it stays, cheap, and brings a missing agent back. It must not die and hardly ever changes, so it and
its other half (``gate``) import the standard library only, nothing else of ours.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import sys
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional, Sequence

from dflash_supervise.agent import gate

PASSED_ON = (signal.SIGTERM, signal.SIGINT)
LOOK_EVERY_S = 2.0  # for a missing agent, and for a reason to leave
AGENTS_AN_HOUR = 5
LOCKED, CANNOT_KEEP = 6, 70
SECRET = re.compile(r"(?i)((?:token|secret|passw\w*|api[-_]?key|credentials?)(?:=|\s+))('[^']*'|\S+)")
UNKNOWN = dict.fromkeys(("oom_kills", "cgroup_oom_kills", "ran_s", "maxrss_kb", "utime_s", "stime_s"))


def main(argv: Sequence[str]) -> int:
    """Keep attempt N of the run in RUN_DIR until it has ended and nobody needs this keeper.

    Returns 0, 6 (another process holds the workspace, a GPU or this attempt), 126 or 127 (not executable, not found),
    70 (files needed for a witnessed attempt are missing or cannot be written).
    """
    session = os.environ.get("XDG_RUNTIME_DIR")
    runtime = argv[2] if len(argv) > 2 else f"{session}/dflash" if session else f"/tmp/dflash-{os.geteuid()}"
    keeper = Keeper(os.path.abspath(argv[0]), int(argv[1]), runtime)
    os.chdir("/")
    os.umask(0o077)
    if os.getsid(0) != os.getpid():
        os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *PASSED_ON))
    gate.set_subreaper(True)
    return keeper.keep()


class Keeper:
    """The life of one keeper. Its locks end with it, also by ``kill -9``."""

    def __init__(self, run_dir: str, number: int, runtime: str) -> None:
        self.run_dir, self.number, self.run_id = run_dir, number, os.path.basename(run_dir)
        self.attempt_dir = os.path.join(run_dir, "attempts", str(number))
        self.runtime, self.private = runtime, os.path.join(runtime, "runs", self.run_id)
        self.intent: Dict[str, Any] = {}
        self.locks: List[int] = []  # the attempt's own first; workspace and GPUs while anything of the attempt lives
        self.agents: List[float] = []  # when one was started, on the monotonic clock
        self.log, self.pid, self.began_s = -1, 0, 0.0
        self.end: Dict[str, Any] = {}
        self.untold: List[str] = []  # where the end must still be written
        self.told = False  # one place has it

    def keep(self) -> int:
        # The attempt's own lock is never released: it is how others know that this keeper lives. Whoever closes an
        # interrupted launch holds it too while he writes exit.json, so it is looked for after the lock is ours.
        if not self._lock(os.path.join(self.private, f"keeper-{self.number}.lock")):
            return LOCKED
        if any(os.path.lexists(os.path.join(self.attempt_dir, name)) for name in ("child.json", "exit.json")):
            return LOCKED  # an attempt has one try
        try:
            self.intent = _read(os.path.join(self.attempt_dir, "launch.json"))
            context = _read(os.path.join(self.private, "context.json"))
            self._open_log(context["argv"])
            for name in map(os.path.basename, self.intent["locks"]):
                path = os.path.join(self.runtime, "locks", name)
                if not self._lock(path):
                    owner = "{run} attempt {attempt}, keeper {pid}".format(**_read(path))
                    return self._never(f"{name} is held by run {owner}", LOCKED)
            return self._run(context)
        except (OSError, ValueError, KeyError) as error:
            return self._never(f"the attempt cannot be kept: {error!r}", CANNOT_KEEP)

    def _run(self, context: Dict[str, Any]) -> int:
        gate_out, gate_in = os.pipe()
        told_out, told_in = os.pipe()
        env, oom_before = self._environment(context), gate.oom_kills()
        self.began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.pid = os.fork()
        if self.pid == 0:
            gate.become_trainer(gate_out, told_in, self.log, (*self.locks, gate_in, told_out), context, env)
        os.close(gate_out)
        os.close(told_in)
        self._failpoint("after_fork")
        try:
            self._record_child()
        except OSError:
            os.close(gate_in)  # the child sees the end of the pipe and leaves
            os.waitpid(self.pid, 0)
            raise
        self._failpoint("before_gate")
        os.write(gate_in, b"g")
        os.close(gate_in)
        self._failpoint("after_gate")
        code = self._wait(told_out, oom_before)
        # Looked at after the wait: an agent that has just said its last word is not started again.
        # An end that no place has taken yet is known to nobody but us: it is tried again for as long as it takes.
        while signal.sigtimedwait(PASSED_ON, LOOK_EVERY_S) is None:
            self._tell_end()
            if (self.told or not self.untold) and self._needless():
                break
            self._keep_agent()
        return code

    def _open_log(self, argv: Sequence[str]) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.log = os.open(os.path.join(self.attempt_dir, "train.log"), flags, 0o600)
        command = SECRET.sub(r"\1***", " ".join(map(shlex.quote, argv)))[:4096].replace("\n", "\\n")
        header = f"[dflash] run={self.run_id} attempt={self.number} started={_wall_clock()} argv={command}\n"
        os.write(self.log, header.encode("utf-8", "backslashreplace"))  # a full disk is no place for a trainer

    def _lock(self, path: str) -> bool:
        me = {"run": self.run_id, "attempt": self.number, "pid": os.getpid(), "start_ticks": _start_ticks(os.getpid())}
        for _ in range(10):  # a look at a lock holds it for an instant
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with suppress(BlockingIOError, FileNotFoundError):  # held, or deleted in between: look again
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.stat(path), os.fstat(fd)):
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, json.dumps(me).encode(), 0)
                    self.locks.append(fd)
                    return True
            os.close(fd)
            time.sleep(0.02)
        return False

    def _environment(self, context: Dict[str, Any]) -> Dict[str, str]:
        """The frozen environment and the values of this attempt; nothing of tmux or of this process."""
        env = {k: v for k, v in context["env"].items() if not k.startswith(("TMUX", "DFLASH_AGENT_"))}
        env.update(DFLASH_RUN=f"{self.run_id}:{self.number}", DFLASH_ATTEMPT_DIR=self.attempt_dir, SPT_NOENV="1")
        env.update(DFLASH_OUTPUT_DIR=self.intent["output_dir"], PYTHONUNBUFFERED="1", PYTHONFAULTHANDLER="1")
        env.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", **(self.intent.get("set_env") or {}))
        if self.intent.get("gpus") is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.intent["gpus"])
        return env

    def _record_child(self) -> None:
        child = {"attempt": self.number, "pid": self.pid, "start_ticks": _start_ticks(self.pid), "boot_id": _boot_id()}
        child.update(keeper_pid=os.getpid(), keeper_start_ticks=_start_ticks(os.getpid()), at=_wall_clock())
        _write(os.path.join(self.attempt_dir, "child.json"), {**child, "at_s": self.began_s})

    def _wait(self, told: int, oom_before: Sequence[Optional[int]]) -> int:
        """Reap until nothing is left below us; the main child's end is written the moment it is seen."""
        code, look_at = 0, time.monotonic() + LOOK_EVERY_S
        while True:
            got = signal.sigtimedwait((signal.SIGCHLD, *PASSED_ON), max(0.0, look_at - time.monotonic()))
            if got is not None and got.si_signo in PASSED_ON and self.pid:
                os.kill(self.pid if os.getpgid(self.pid) != self.pid else -self.pid, signal.SIGTERM)
            pid = -1
            while pid != 0:
                try:
                    pid, status, usage = os.wait4(-1, os.WNOHANG)
                except ChildProcessError:
                    while len(self.locks) > 1:
                        os.close(self.locks.pop())
                    return code
                if pid == self.pid != 0:
                    why = os.read(told, 4096).decode("utf-8", "replace") or None
                    code = self._ended(status, usage, why, oom_before)
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_EVERY_S
                if not self.told:
                    self._tell_end()
                self._keep_agent()

    def _ended(self, status: int, usage: Any, why: Optional[str], oom_before: Sequence[Optional[int]]) -> int:
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        ran_s = round(time.clock_gettime(time.CLOCK_BOOTTIME) - self.began_s, 3)
        oom = [None if a is None or b is None else a - b for a, b in zip(gate.oom_kills(), oom_before)]
        end = {"core": os.WCOREDUMP(status), "ran_s": ran_s, "oom_kills": oom[0], "cgroup_oom_kills": oom[1]}
        end.update(maxrss_kb=usage.ru_maxrss, utime_s=round(usage.ru_utime, 3), stime_s=round(usage.ru_stime, 3))
        self._write_exit(code=code, signal=number, exec_error=why, **end)
        self.pid = 0  # reaped: the number may be another's from now on
        if why is not None:
            self._say("not started: " + why)
        self._say(f"ended code={code} signal={number} after={ran_s:.1f}s")
        return code if why is not None and code is not None else 0

    def _never(self, why: str, code: int) -> int:
        """No trainer of this attempt will ever run: say so where the agent looks."""
        self._say("not started: " + why)
        self._write_exit(code=LOCKED if code == LOCKED else None, signal=None, core=False, exec_error=why)
        return code

    def _write_exit(self, **end: Any) -> None:
        self.end = {"attempt": self.number, "pid": self.pid or None, "at": _wall_clock(), **UNKNOWN, **end}
        # Our own folder first: the workspace may be full, gone, or hold this write for minutes.
        copy = os.path.join(self.private, f"exit-{self.number}.json")
        self.untold = [copy, os.path.join(self.attempt_dir, "exit.json")]
        for why in self._tell_end():
            self._say(f"could not write {why}")

    def _tell_end(self) -> List[str]:
        """Write the end where it is not yet; why not where it could not be."""
        paths, self.untold, failed = self.untold, [], []
        for path in paths:
            try:
                _write(path, self.end)
                self.told = True
            except OSError as error:
                failed.append(f"{path}: {error}")
                if os.path.isdir(os.path.dirname(path)):  # a folder that was deleted takes nothing any more
                    self.untold.append(path)
        return failed

    def _needless(self) -> bool:
        """The run is over, or a later attempt has its own keeper."""
        attempts = os.path.join(self.run_dir, "attempts")
        if not os.path.isdir(attempts) or os.path.exists(os.path.join(self.run_dir, "final.json")):
            return True
        for name in os.listdir(attempts):
            if name.isascii() and name.isdecimal() and int(name) > self.number:
                with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):  # not recorded, or no record
                    later = _read(os.path.join(attempts, name, "child.json"))
                    started = _start_ticks(later["keeper_pid"]) if later["boot_id"] == _boot_id() else None
                    if started is not None and started == later["keeper_start_ticks"]:
                        return True
        return False

    def _keep_agent(self) -> None:
        """Start the run's agent when nobody holds its lock. Touches nothing in the workspace, which may hang."""
        self.agents = [at for at in self.agents if time.monotonic() - at < 3600]
        if not self.intent.get("agent") or len(self.agents) >= AGENTS_AN_HOUR:
            return
        try:
            with open(os.path.join(self.private, "agent.lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            pass  # no lock file: no agent has ever held it
        self.agents.append(time.monotonic())
        gate.start_outside(self.intent["agent"], self.locks)

    def _say(self, text: str) -> None:
        with suppress(OSError):  # exit.json says the same, and a full disk must not cost the witness
            os.write(self.log, f"[dflash] {text}\n".encode("utf-8", "backslashreplace"))

    def _failpoint(self, name: str) -> None:
        if self.intent.get("failpoint") in (name, f"{name}@{self.number}"):
            os.kill(os.getpid(), signal.SIGKILL)


def _start_ticks(pid: int) -> Optional[int]:
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    return None


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _wall_clock() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _read(path: str) -> Dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        value: Dict[str, Any] = json.load(file)
    return value


def _write(path: str, value: Dict[str, Any]) -> None:
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(beside, path)
    except OSError:
        with suppress(OSError):
            os.unlink(beside)
        raise
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(folder)
    os.close(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
