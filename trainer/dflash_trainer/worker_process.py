"""`python -m dflash_trainer.worker_process NAME PARENT FD STACKS`: one worker, started by `process_pool`.

This half is there before torch is imported: it ties the process to its parent's life, installs the handlers,
and tells the loop how the worker ended.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from dflash_trainer import exits, log

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Work until the run is over. Does not return."""
    name, parent, fd, stacks = sys.argv[1:]
    die_with(int(parent))
    _handle_signals(Path(stacks))
    os.set_inheritable(int(fd), False)  # what a compiler starts must not hold it open
    way = Connection(int(fd))
    code = 0
    try:
        from dflash_trainer.worker_line import work

        work(name, way)
        _tell(way, "finished")
    except exits.ClosedError:
        _tell(way, "finished")
    except SystemExit:
        pass  # it ends without a word, as asked
    except BaseException as error:  # noqa: BLE001  # the process's last line of defence: every end has its code
        code = exits.code_of(error)
        text = "".join(traceback.format_exception(error))
        if not _tell(way, "failed", exits.in_words(error), code, text):
            log.process_exception(name, text)
    log.flush()
    os._exit(code)


def die_with(parent: int) -> None:
    """Be killed by the kernel when the thread that started us ends, however it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(0)


def _handle_signals(stacks: Path) -> None:
    """SIGTERM and SIGINT are for the loop, which tells us; they were blocked until here, and so was SIGUSR1."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=sys.stderr, all_threads=True)
    out = os.open(stacks, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)  # open until the end
    faulthandler.register(signal.SIGUSR1, file=out, all_threads=True, chain=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1})


def _tell(way: Connection, *message: object) -> bool:
    from dflash_trainer.messages import send

    try:
        send(way, *message)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
