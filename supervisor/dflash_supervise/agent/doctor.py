"""What could stand in the way on this host, and what to do about it. ``ok`` None: it cannot be told from here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Sequence

from dflash_supervise.agent import spec_store
from dflash_supervise.agent.files import UnsafeFolder
from dflash_supervise.agent.gpus import one_look, probe_settings
from dflash_supervise.agent.host import free_room
from dflash_supervise.agent.preflight import GPU_LOOK_S, LEAST_DISK_BYTES, find_tmux
from dflash_supervise.agent.pythons import find_python
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.core.facts import Missing

Check = Dict[str, Any]
LEAST_SHM_BYTES = 1 << 30


def doctor(runtime: Runtime, workspace: str, pythons: Sequence[str] = ()) -> List[Check]:
    """All checks, in the order in which a person should read them. pythons: see ``preflight``."""
    return [
        _python(),
        _workspace(workspace),
        _durable(workspace),
        _room("disk", workspace, LEAST_DISK_BYTES, "free at least 1 GiB, or choose another workspace"),
        _room("shared memory", "/dev/shm", LEAST_SHM_BYTES, "give the container --shm-size=8g or more"),
        _runtime(runtime),
        _tmux(),
        *_gpus(runtime),
        _trainer_python(runtime, workspace, pythons),
        _kernel_log(),
        _logout(),
        _oom(),
    ]


def _check(name: str, ok: Optional[bool], detail: str, fix: str = "") -> Check:
    return {"name": name, "ok": ok, "detail": detail, "fix": "" if ok else fix}


def _python() -> Check:
    return _check("agent's Python", True, "{}.{}.{} at {}".format(*sys.version_info[:3], sys.executable))


def _workspace(workspace: str) -> Check:
    if not os.path.isdir(workspace):
        return _check("workspace", False, workspace + " is not a folder", "mkdir -p " + workspace)
    if not os.access(workspace, os.W_OK | os.X_OK):
        return _check("workspace", False, workspace + " cannot be written", "choose a folder of your own")
    try:
        spec_store.check_workspace(workspace)
    except UnsafeFolder as error:
        return _check("workspace", False, str(error), error.fix)
    return _check("workspace", True, workspace)


def _durable(workspace: str) -> Check:
    """How long a write takes to reach the disk here: every decision waits for one."""
    path = os.path.join(workspace, f".dflash-doctor.{os.getpid()}")
    began = time.monotonic()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b"x" * 4096)
            os.fsync(fd)
        finally:
            os.close(fd)
            os.unlink(path)
    except OSError as error:
        return _check("durable write", False, str(error), "the workspace must take files and fsync")
    took_s = time.monotonic() - began
    detail = f"4 KiB and fsync in {took_s * 1000:.0f} ms"
    return _check("durable write", took_s < 1.0, detail, "decisions will be late on this file system")


def _room(name: str, path: str, least: int, fix: str) -> Check:
    free, inodes = free_room(path)
    if free is None:
        return _check(name, None, path + " does not say")
    detail = f"{free / 2**30:.1f} GiB free at {path}"
    if inodes is not None:
        detail += f", {inodes} inodes"
    return _check(name, free >= least and (inodes is None or inodes >= 1000), detail, fix)


def _runtime(runtime: Runtime) -> Check:
    kind = _file_system(runtime.root)
    shared = kind in ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "9p")
    detail = "{} on {}".format(runtime.root, kind or "an unknown file system")
    fix = "set XDG_RUNTIME_DIR to a folder of this host alone: locks must not be shared between machines"
    return _check("runtime folder", None if kind is None else not shared, detail, fix)


def _file_system(path: str) -> Optional[str]:
    """The type of the mount that holds the path (/proc/self/mounts)."""
    best, kind = "", None
    real = os.path.realpath(path)
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            for line in file:
                parts = line.split()
                mount = parts[1].replace("\\040", " ")
                inside = real == mount or real.startswith(mount.rstrip("/") + "/")
                if inside and len(mount) >= len(best):
                    best, kind = mount, parts[2]
    except OSError:
        return None
    return kind


def _tmux() -> Check:
    found = find_tmux()
    if found is None:
        return _check("tmux", False, "there is no tmux in PATH", "install tmux, or start with --no-tmux")
    return _check("tmux", True, "{} at {}".format(found["version"], found["path"]))


def _gpus(runtime: Runtime) -> List[Check]:
    reading = one_look(probe_settings(runtime.options("")), GPU_LOOK_S)
    if isinstance(reading, Missing):
        fix = "does nvidia-smi answer here? After a driver update the machine must be rebooted"
        return [_check("GPUs", False, reading.reason, fix)]
    if reading.absent is not None:
        return [_check("GPUs", None, reading.absent)]
    if reading.stuck_s is not None:
        text = f"the driver has not answered for {reading.stuck_s:.0f} s"
        return [_check("GPUs", False, text, "look at dmesg; a reset or reboot may be needed")]
    checks = []
    for gpu in reading.gpus:
        name = f"GPU {gpu.index}"
        if gpu.error is not None:
            checks.append(_check(name, False, f"{gpu.uuid}: {gpu.error}", "look at dmesg for its XID"))
            continue
        used = "?" if gpu.mem_used_bytes is None else f"{gpu.mem_used_bytes / 2**20:.0f} MiB"
        held = "holders unknown" if gpu.holders is None else f"{len(gpu.holders)} holders"
        detail = f"{gpu.name} {gpu.uuid}, {used} used, {held}, by {gpu.source}"
        checks.append(_check(name, True, detail))
    return checks


def _trainer_python(runtime: Runtime, workspace: str, pythons: Sequence[str]) -> Check:
    found, tried = find_python(runtime, workspace, None, need_cuda=False, also=pythons)
    if found is not None:
        cuda = f"CUDA {found.cuda}" if found.cuda else "no CUDA"
        detail = f"{found.path} with Python {found.version}, torch {found.torch}, {cuda}"
        return _check("trainer's Python", True, detail)
    detail = "; ".join(f"{item.path} {item.why}" for item in tried) or "no Python was found"
    fix = (
        "only the bundled trainer needs it: name one with start --python, "
        "or make <workspace>/.venv with torch 2.11 or newer"
    )
    return _check("trainer's Python", None, detail, fix)


def _kernel_log() -> Check:
    readable = os.access("/dev/kmsg", os.R_OK)
    detail = "readable" if readable else "not readable: XIDs come from NVML only"
    return _check("kernel log", readable or None, detail, "sysctl kernel.dmesg_restrict=0 shows it to everybody")


def _logout() -> Check:
    """Whether logind ends our processes when the session ends (``KillUserProcesses``)."""
    if not os.path.isdir("/run/systemd/system"):
        return _check("logout", True, "no systemd here: a logout ends nothing")
    manager = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
    kill = _ask(["busctl", "get-property", *manager, "KillUserProcesses"])
    if kill is None:
        return _check("logout", None, "logind does not answer")
    if kill.strip() != "b true":
        return _check("logout", True, "logind leaves processes alive after a logout")
    linger = os.path.exists("/var/lib/systemd/linger/" + _user())
    return _check("logout", linger, "logind ends a user's processes at logout", "loginctl enable-linger")


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _ask(argv: List[str]) -> Optional[str]:
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _oom() -> Check:
    """Whether an OOM kill can be told from a kill by somebody: the kernel's counter must be readable."""
    try:
        with open("/proc/vmstat", "rb") as file:
            readable = b"oom_kill " in file.read()
    except OSError:
        readable = False
    detail = "the kernel counts OOM kills" if readable else "no OOM counter: a SIGKILL cannot be told from one"
    return _check("OOM counter", readable or None, detail)
