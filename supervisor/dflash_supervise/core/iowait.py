"""Waiting for a disk or a file system: an fsync moves no counter and looks like a dead process."""

from __future__ import annotations

from .facts import ProcessFact

# Parts of the kernel functions in which a flush, a network file system or FUSE waits, D or not. An interruptible FUSE
# request waits in S before it waits in D.
PLACES = ("fsync", "writeback", "nfs", "rpc_wait", "fuse", "request_wait_answer", "balance_dirty", "log_wait_commit")


def waits_for_io(process: ProcessFact) -> bool:
    return process.state == "D" or any(place in (process.wchan or "") for place in PLACES)
