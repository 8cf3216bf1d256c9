"""``run RUN_DIR``: the agent of one run, in the background, from its first look to the run's end."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from dflash_supervise.agent import brain_state
from dflash_supervise.agent.files import UnsafeFolder, read_json, write_json
from dflash_supervise.agent.goals import Goals
from dflash_supervise.agent.gpus import new_probe, probe_settings
from dflash_supervise.agent.journal import Journal
from dflash_supervise.agent.lane import Job, Lane
from dflash_supervise.agent.launch import workspace_of
from dflash_supervise.agent.loop import Agent, Tick
from dflash_supervise.agent.proc import start_ticks
from dflash_supervise.agent.record_writer import RecordWriter
from dflash_supervise.agent.records import next_epoch, torn_tail_bytes
from dflash_supervise.agent.runtime import Lock, Runtime, boottime_s, machine_identity, take_lock, wall_clock
from dflash_supervise.agent.spec import check_run_id
from dflash_supervise.agent.spec_store import check_workspace, last_word
from dflash_supervise.agent.start import agent_hash
from dflash_supervise.agent.workspace import WorkspaceEyes
from dflash_supervise.core.memory import Memory, new_agent

TICK_S = 1.0
SOON_S = 0.1
BEAT_S = 10.0
CLOSE_S = 10.0
ERR_BYTES = 1 << 20


def main(run_dir: str) -> int:
    """Go to the background and watch the run there; returns at once. 6: the run directory or runtime is unsafe."""
    run_id = check_run_id(os.path.basename(run_dir))
    try:
        runtime = Runtime.open()
        runtime.run(run_id)
        check_workspace(workspace_of(run_dir), run_id)
    except UnsafeFolder as error:
        sys.stderr.write(f"{error}\n{error.fix}\n")
        return 6
    if os.fork():
        return 0
    os.setsid()
    if os.fork():
        os._exit(0)
    _leave_the_terminal(runtime.in_run(run_id, "agent.err"))
    options = runtime.options(run_id)
    runtime = Runtime(runtime.root, str(options.get("proc_root", "/proc")))
    code = serve(runtime, run_dir, options)
    sys.stderr.flush()
    os._exit(code)  # a lane that hangs in the workspace must not keep a finished agent alive


def serve(runtime: Runtime, run_dir: str, options: Dict[str, Any]) -> int:
    """Watch the run in this process until it is over, or until SIGTERM. 0; 0 also when another agent holds it."""
    run_id = os.path.basename(run_dir)
    mine = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
    lock = take_lock(runtime.agent_lock(run_id), mine, wait_s=0.5)
    if lock is None:
        return 0
    if is_over(runtime, run_dir):
        lock.release()
        return 0
    life = Life(runtime, run_dir, options, dict(mine, hash=agent_hash()), lock)
    try:
        life.run()
    finally:
        life.close()
        lock.release()
    return 0


def is_over(runtime: Runtime, run_dir: str) -> bool:
    """Whether an agent has written the last word on the goal in force: then there is nothing to watch."""
    return last_word(runtime, workspace_of(run_dir), os.path.basename(run_dir)) is not None


class Life:
    """The agent's process: clocks, signals, sleep; the ticks themselves are ``loop.Agent``'s."""

    def __init__(self, runtime: Runtime, run_dir: str, options: Dict[str, Any], me: Dict[str, Any], lock: Lock) -> None:
        self._runtime, self._run_dir, self._options, self._me = runtime, run_dir, options, me
        self._run_id, self._lock = os.path.basename(run_dir), lock
        self._tick_s = float(options.get("tick_s", TICK_S))
        self._agent: Optional[Agent] = None
        self._leaving = False
        self._beat_s = 0.0
        self._wake_out, self._wake_in = os.pipe()
        self._pidfd: Optional[int] = None
        self._watched: Optional[Tuple[int, int]] = None

    def run(self) -> None:
        """Ticks until the run is over or somebody asks to leave."""
        os.set_blocking(self._wake_in, False)
        signal.set_wakeup_fd(self._wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGINT, self._leave)
        self._agent = self._begin()
        while not self._leaving:
            assert self._agent is not None
            if not self._lock.in_place():
                return  # the lock file was removed, so another agent may hold a new one: one of us must go
            began = time.monotonic()
            now_s = boottime_s()
            tick = self._agent.tick(now_s)
            self._beat(now_s, tick)
            if tick.over and self._finish(tick):
                return
            took = time.monotonic() - began
            self._agent.last_tick_ms = round(took * 1000, 1)
            self._sleep(SOON_S if tick.soon else max(0.0, self._tick_s - took))

    def close(self) -> None:
        """Write what is left and end the probe."""
        if self._agent is not None:
            self._agent.journal.close(CLOSE_S)
            self._agent.probe.close()

    def _leave(self, number: int, frame: Any) -> None:
        self._leaving = True

    def _begin(self) -> Optional[Agent]:
        """Load what earlier agents left; waits as long as the workspace takes, and says so in agent.json."""
        lane = Lane("begin")
        job = lane.submit(lambda: _load(self._runtime, self._run_dir))
        while not job.wait(0.5):
            self._beat(boottime_s(), None)
            if self._leaving:
                return None
        epoch, torn, loaded = job.result()
        now_s = boottime_s()
        machine = machine_identity(self._runtime.proc_root)
        self._me["epoch"] = epoch
        records = os.path.join(self._run_dir, "records")
        writer = RecordWriter(records, self._runtime.spare_records(self._run_id), epoch)
        journal = Journal(self._run_dir, self._run_id, writer, self._runtime.run(self._run_id))
        goals = Goals(self._runtime, self._run_id, now_s, str(machine["boot_id"]))
        agent = Agent(
            runtime=self._runtime,
            run_dir=self._run_dir,
            machine=machine,
            journal=journal,
            eyes=WorkspaceEyes(self._run_dir, self._run_id),
            probe=new_probe(probe_settings(self._options)),
            goals=goals,
            memory=new_agent(loaded.memory, now_s) if loaded.memory != Memory() else loaded.memory,
            options=self._options,
        )
        about = {"pid": os.getpid(), "hash": agent_hash(), "python": "{}.{}.{}".format(*sys.version_info[:3])}
        journal.add(now_s, "agent_start", agent=about, machine=machine, capabilities=capabilities())
        for text in (
            loaded.lost,
            f"the last record before this agent is torn ({torn} bytes)" if torn else None,
        ):
            if text:
                journal.add(now_s, "note", text=text)
        return agent

    def _beat(self, now_s: float, tick: Optional[Tick]) -> None:
        if now_s - self._beat_s >= BEAT_S:
            self._beat_s = now_s
            why = self._tell_me(heartbeat_s=round(now_s, 3), started=tick is not None)
            if self._agent is not None:
                self._agent.runtime_trouble = why

    def _finish(self, tick: Tick) -> bool:
        """Write final.json and leave, unless a newer goal has come; under the spec's lock, so that none gets lost.

        Where the run directory is gone for good, the last word lies in the runtime folder, beside the records.
        """
        agent, decision = self._agent, tick.decision
        assert agent is not None and decision is not None and agent.goals.spec is not None
        gone = agent.run_dir_gone
        whole = agent.journal.flush(agent.memory, durable=True, wait_s=CLOSE_S)
        if not whole and not (gone and agent.journal.trouble):
            return False
        lock = take_lock(self._runtime.in_run(self._run_id, "spec.lock"), {"pid": os.getpid()}, wait_s=1.0)
        if lock is None:
            return False
        try:
            if agent.goals.update(None):
                return False
            final = {
                "verdict": decision.assessment.verdict.value,
                "cause": decision.assessment.cause,
                "at": wall_clock(),
                "generation": agent.goals.spec.generation,
            }
            folder = self._runtime.run(self._run_id) if gone else self._run_dir
            job = Lane("final").submit(lambda: write_json(os.path.join(folder, "final.json"), final))
            if not _went_well(job):
                return False
            self._tell_me(leaving=True)
            return True
        finally:
            lock.release()

    def _tell_me(self, **more: Any) -> str:
        """Write agent.json; why it could not be, else nothing: who looks for us finds our lock all the same."""
        try:
            write_json(self._runtime.in_run(self._run_id, "agent.json"), dict(self._me, **more), durable=False)
        except OSError as error:
            return f"the runtime folder takes nothing: {error}"
        return ""

    def _sleep(self, seconds: float) -> None:
        """Until the next tick is due, the trainer's main process ends, or a signal comes."""
        self._watch(self._agent.main if self._agent is not None else None)
        fds = [self._wake_out] + ([self._pidfd] if self._pidfd is not None else [])
        ready, _, _ = select.select(fds, [], [], seconds)
        if self._wake_out in ready:
            os.read(self._wake_out, 64)
        if self._pidfd is not None and self._pidfd in ready:
            os.close(self._pidfd)
            self._pidfd = None
            time.sleep(0.05)  # the keeper writes exit.json in the same moment

    def _watch(self, main: Optional[Tuple[int, int]]) -> None:
        if main == self._watched:
            return
        self._watched = main
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        opener = getattr(os, "pidfd_open", None)  # Python 3.9, Linux 5.3
        if main is None or main[0] <= 0 or opener is None:
            return
        try:
            self._pidfd = opener(main[0])
        except OSError:
            self._pidfd = None  # gone already, or no pidfds here: the next tick sees it


def capabilities() -> List[Dict[str, Any]]:
    """What this host offers to the agent, and why not where it does not."""
    kmsg = os.access("/dev/kmsg", os.R_OK)
    pidfd = hasattr(os, "pidfd_open")
    io = os.access("/proc/self/io", os.R_OK)
    return [
        {"name": "pidfd", "ok": pidfd, "why": "" if pidfd else "Python before 3.9"},
        {"name": "kernel_log", "ok": kmsg, "why": "" if kmsg else "/dev/kmsg is not readable"},
        {"name": "process_io", "ok": io, "why": "" if io else "/proc/PID/io is not readable"},
    ]


def _load(runtime: Runtime, run_dir: str) -> Tuple[str, int, brain_state.Loaded]:
    run_id, folder = os.path.basename(run_dir), os.path.join(run_dir, "records")
    # A deleted run directory must not make epochs begin anew: they order the records for ever.
    before = (read_json(runtime.in_run(run_id, "agent.json")) or {}).get("epoch", "")
    epoch = next_epoch(folder, runtime.spare_records(run_id), before=str(before))
    return epoch, torn_tail_bytes(folder), brain_state.load(run_dir, runtime.run(run_id))


def _went_well(job: Job[None]) -> bool:
    if not job.wait(CLOSE_S):
        return False
    try:
        job.result()
    except OSError:
        return False
    return True


def _leave_the_terminal(err_path: str) -> None:
    """No terminal can freeze or hang up the agent; what Python says when it dies goes to a file."""
    os.chdir("/")
    os.umask(0o077)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    err = os.open(err_path, flags | (os.O_TRUNC if _size(err_path) > ERR_BYTES else 0), 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, null), (2, err)):
        os.dup2(source, target)
    for fd in (null, err):
        if fd > 2:
            os.close(fd)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
