"""Causes of a run that lives and does not move."""

from __future__ import annotations

from typing import Tuple

from .cause import AFTER_CLEANUP, RESTART, Cause

STALLS: Tuple[Cause, ...] = (
    Cause(
        "data_stall",
        "data did not come",
        "host",
        RESTART,
        precedence=620,
        marks=(
            r"prefetch queue (?:is )?empty",
            r"[Dd]ata[Ll]oader .*(?:stalled|is slow|waiting|no batch)",
            r"[Dd]ata loader .*(?:stalled|is slow|waiting|no batch)",
            r"waiting for (?:data|the next batch|batch|shard)",
            r"queue (?:has been )?(?:empty|starved) for ",
            r"nfs: server .*not responding",
            r"\bno batch for ",
            r"\bno data for ",
        ),
        advice="look at the file system the data comes from; SIGKILL does not help a process in state D",
    ),
    Cause(
        "stale_lock",
        "waits for a lock whose owner is dead",
        "program",
        AFTER_CLEANUP,
        precedence=630,
        before_step=True,
        marks=(
            r"as PyTorch extensions root",
            r"[Ww]aiting (?:for|to acquire) (?:a |the )?(?:file )?lock",
            r"[Ll]ock file .*(?:exists|held|found)",
            r"[Bb]locking waiting for file lock",
            r"Lock \d* ?(?:not acquired|acquire attempt) on ",
            r"another process .*(?:holds|is building|is compiling)",
        ),
        remedy="remove_lock",
        advice="remove the lock once it is certain that its owner is gone",
    ),
    Cause(
        "dataloader_deadlock",
        "the loader's workers wait for each other",
        "program",
        RESTART,
        precedence=632,
        before_step=True,
        marks=(r"DataLoader timed out", r"after parallelism has already been used"),
        advice="start the loader's workers by spawn, or give it a timeout",
    ),
    Cause(
        "uneven_data",
        "one rank ran out of data before the others",
        "program",
        RESTART,
        max_restarts=1,
        precedence=634,
        marks=(
            r"(?:rank|worker|loader|shard).*no more (?:batches|data|samples)",
            r"no more (?:batches|data|samples).*(?:rank|worker|shard)",
            r"(?:rank|worker|loader|shard).*\bexhausted\b",
            r"\bexhausted\b.*(?:rank|worker|shard)",
            r"ran out of (?:data|batches|samples)",
            r"end of (?:data|dataset|epoch|shard).*(?:rank|exiting|leaving|exit)",
        ),
        advice="give every rank the same number of batches (drop_last, a join context)",
    ),
    Cause(
        "nccl_spin",
        "ranks wait in a collective for a missing peer",
        "program",
        RESTART,
        precedence=780,
        before_step=True,
        advice="look at the stacks of the rank that does not spin",
    ),
    Cause(
        "compile_deadlock",
        "compiler lock deadlock",
        "program",
        RESTART,
        remedy="process_workers",
        precedence=790,
        before_step=True,
        marks=(r"compile_lock", r"compile_fx_backward"),
        advice="give each device a process instead of a thread",
    ),
    Cause(
        "gil_deadlock",
        "threads wait for Python's interpreter lock",
        "program",
        RESTART,
        precedence=795,
        before_step=True,
        marks=(r"take_gil", r"PyGILState_Ensure", r"PyEval_RestoreThread", r"waiting for the GIL", r"holds? the GIL"),
        advice="look for native code that waits while it holds the lock",
    ),
    Cause("lock_deadlock", "threads wait for each other", "program", RESTART, precedence=800, before_step=True),
)
