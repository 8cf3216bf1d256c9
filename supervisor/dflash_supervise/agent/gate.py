"""How the keeper makes processes: the trainer behind its gate, and an agent outside of the trainer's tree.

And what the kernel counts of those it killed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from contextlib import suppress
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Tuple

PR_SET_CHILD_SUBREAPER = 36
OOM_SCORE_ADJ = 500  # the kernel takes the trainer before keeper, agent and tmux
NOT_EXECUTABLE, NOT_FOUND = 126, 127


def set_subreaper(on: bool) -> None:
    """Whether orphans below us become our children: then none of the trainer's processes can leave its tree."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def become_trainer(
    gate: int, told: int, log: int, close: Sequence[int], context: Dict[str, Any], env: Dict[str, str]
) -> NoReturn:
    """The trainer's process before it is the trainer. It runs nothing unless the keeper has recorded it.

    gate: a byte on it opens it, its end means that the keeper died. told: takes one sentence if the command cannot be
    run, and closes by itself when it runs. log: becomes stdout and stderr. close: what must not reach the trainer.
    Exit code 127 if the command does not exist, 126 if anything else stands in the way.
    """
    code, what = NOT_EXECUTABLE, "cannot prepare the process"
    try:
        for fd in close:
            os.close(fd)
        os.setsid()
        if os.read(gate, 1) != b"g":
            os._exit(0)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:  # a container may forbid it
            file.write(str(max(int(file.read()), OOM_SCORE_ADJ)))
        for name, limits in (context.get("limits") or {}).items():
            resource.setrlimit(getattr(resource, name), tuple(limits))
        for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, target)
        os.umask(context["umask"])
        what = "cannot enter the working directory {}".format(context["cwd"])
        os.chdir(context["cwd"])
        what = "cannot run {}".format(context["argv"][0])
        os.execvpe(context["argv"][0], context["argv"], env)
    except Exception as error:  # noqa: BLE001 - whatever it was, the keeper tells it
        code = NOT_FOUND if isinstance(error, FileNotFoundError) and what.startswith("cannot run") else code
        why = getattr(error, "strerror", None) or error  # the text of an OSError names a path of the search as bytes
        os.write(told, f"{what}: {why}".encode("utf-8", "backslashreplace")[:4096])
    finally:
        os._exit(code)


def start_outside(command: Sequence[str], locks: Sequence[int]) -> None:
    """Start a process that is no descendant of ours: what lives below us is the attempt's and is stopped with it.

    A subreaper adopts every orphan below it, so for the instant in which the go-between exits we are none.
    """
    gate_out, gate_in = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            for fd in (*locks, gate_in):
                os.close(fd)
            if os.fork() == 0:
                os.setsid()
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.execv(command[0], list(command))
            os.read(gate_out, 1)
        finally:
            os._exit(0)
    os.close(gate_out)
    set_subreaper(False)
    os.close(gate_in)
    os.waitpid(between, 0)
    set_subreaper(True)


def oom_kills() -> Tuple[Optional[int], Optional[int]]:
    """The kernel's counts of oom-killed processes: on this machine, in our cgroup (v1 if it has memory, else v2)."""
    paths = ["/proc/vmstat", "/sys/fs/cgroup/memory.events"]
    found: List[Optional[int]] = []
    with suppress(OSError), open("/proc/self/cgroup") as file:
        for _, controllers, path in (line.rstrip("\n").split(":", 2) for line in file):
            if controllers == "memory" or (controllers == "" and "oom_control" not in paths[1]):
                paths[1] = f"/sys/fs/cgroup/{controllers}{path}/memory." + ("oom_control" if controllers else "events")
    for path in paths:
        found.append(None)
        with suppress(OSError), open(path) as file:
            found[-1] = next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), None)
    return found[0], found[1]
