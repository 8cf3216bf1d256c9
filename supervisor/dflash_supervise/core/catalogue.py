"""The catalogue of causes as data: signature, blame, what to do. ``causes`` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

RESTART = "restart"
AFTER_CLEANUP = "restart_after_cleanup"
FIX_CONFIG = "no_restart_fix_config"
PAGE = "alert_human"
WAIT = "wait"
NONE = "none"


@dataclass(frozen=True)
class Cause:
    """One entry of the catalogue."""

    slug: str
    title: str  # what a person reads: "CUDA out of memory"
    blame: str  # user, program, host, hardware, outside
    action: str
    max_restarts: Optional[int] = None  # None: the policy's budget; 0 where the action is no restart
    remedy: Optional[str] = None
    precedence: int = 50
    before_step: bool = False  # may be retried even when it comes before the first step
    patterns: Tuple[str, ...] = ()


CATALOGUE: Tuple[Cause, ...] = (
    Cause("host_reboot", "the host rebooted", "host", RESTART, precedence=9, before_step=True),
    Cause(
        "fx_tracing_race",
        "FX tracing race between threads",
        "program",
        RESTART,
        remedy="process_workers",
        precedence=10,
        before_step=True,
        patterns=(r"Detected that you are using FX to symbolically trace a dynamo-optimized function",),
    ),
    Cause(
        "launch_interrupted",
        "the launch was interrupted before the trainer ran",
        "host",
        RESTART,
        precedence=11,
        before_step=True,
    ),
    Cause(
        "host_oom_kill", "killed by the kernel for lack of memory", "host", FIX_CONFIG, max_restarts=0, precedence=12
    ),
    Cause("duplicate_session", "a later attempt owns the output folder", "user", PAGE, max_restarts=0, precedence=13),
    Cause(
        "killed_externally", "killed by somebody", "outside", RESTART, max_restarts=1, precedence=14, before_step=True
    ),
    Cause(
        "tmux_killed_on_logout",
        "hung up at logout",
        "outside",
        RESTART,
        max_restarts=1,
        precedence=15,
        before_step=True,
    ),
    Cause(
        "cuda_oom",
        "CUDA out of memory",
        "user",
        FIX_CONFIG,
        max_restarts=0,
        precedence=20,
        patterns=(
            r"CUDA out of memory",
            r"OutOfMemoryError: .*(?:tried to allocate|out of memory)",
            r"CUDA error: out of memory",
            r"CUBLAS_STATUS_ALLOC_FAILED",
        ),
    ),
    Cause(
        "disk_full",
        "disk full",
        "host",
        AFTER_CLEANUP,
        precedence=22,
        patterns=(
            r"No space left on device",
            r"\[Errno 28\]",
            r"\bENOSPC\b",
        ),
    ),
    Cause(
        "port_in_use",
        "port already in use",
        "host",
        AFTER_CLEANUP,
        max_restarts=1,
        remedy="another_port",
        precedence=24,
        before_step=True,
        patterns=(
            r"Address already in use",
            r"\bEADDRINUSE\b",
            r"address already in use",
        ),
    ),
    Cause(
        "device_side_assert",
        "device-side assert",
        "program",
        FIX_CONFIG,
        max_restarts=0,
        precedence=28,
        patterns=(r"device-side assert triggered",),
    ),
    Cause(
        "cuda_illegal_memory_access",
        "illegal memory access on the GPU",
        "program",
        RESTART,
        max_restarts=1,
        precedence=29,
        patterns=(r"an illegal memory access was encountered",),
    ),
    Cause(
        "import_error",
        "import failed",
        "user",
        FIX_CONFIG,
        max_restarts=0,
        precedence=30,
        patterns=(r"^(?:ModuleNotFoundError|ImportError): ",),
    ),
    Cause(
        "permission_denied",
        "permission denied",
        "user",
        FIX_CONFIG,
        max_restarts=0,
        precedence=35,
        patterns=(
            r"^PermissionError: ",
            r": Permission denied$",
        ),
    ),
    Cause(
        "command_not_found",
        "command not found",
        "user",
        FIX_CONFIG,
        max_restarts=0,
        precedence=36,
        patterns=(r": command not found$",),
    ),
    Cause(
        "segfault",
        "segmentation fault",
        "program",
        RESTART,
        max_restarts=1,
        precedence=40,
        before_step=True,
        patterns=(r"Fatal Python error: Segmentation fault",),
    ),
    Cause("illegal_instruction", "illegal instruction", "host", PAGE, max_restarts=0, precedence=41),
    Cause("bus_error", "bus error", "program", RESTART, max_restarts=1, precedence=42, before_step=True),
    Cause(
        "abort",
        "aborted",
        "program",
        RESTART,
        max_restarts=1,
        precedence=43,
        before_step=True,
        patterns=(r"Fatal Python error: Aborted",),
    ),
    Cause("nan_loss", "non-finite loss", "program", PAGE, max_restarts=0, precedence=44),
    Cause("config_error", "configuration refused", "user", FIX_CONFIG, max_restarts=0, precedence=45),
    Cause(
        "missing_file",
        "data missing or broken",
        "user",
        FIX_CONFIG,
        max_restarts=0,
        precedence=46,
        patterns=(r"^FileNotFoundError: ",),
    ),
    Cause("remote_service_error", "a remote service failed", "outside", RESTART, precedence=47, before_step=True),
    Cause(
        "recompile_limit",
        "recompiled after warm-up",
        "program",
        RESTART,
        max_restarts=1,
        remedy="process_workers",
        precedence=48,
        before_step=True,
    ),
    Cause("false_success", "exit 0 without the completion marker", "program", RESTART, max_restarts=1, precedence=49),
    Cause(
        "nccl_timeout",
        "collective timed out",
        "program",
        RESTART,
        precedence=60,
        patterns=(r"Watchdog caught collective operation timeout",),
    ),
    Cause("data_stall", "data did not come", "host", RESTART, precedence=62),
    Cause("bug_in_code", "bug in the training code", "program", FIX_CONFIG, max_restarts=0, precedence=70),
    Cause("rank_exception", "uncaught exception", "program", RESTART, max_restarts=1, precedence=71),
    Cause("worker_dead", "a worker thread is dead", "program", RESTART, precedence=76, before_step=True),
    Cause("stopped_process", "process is stopped (state T)", "outside", PAGE, max_restarts=0, precedence=77),
    Cause(
        "nccl_spin",
        "ranks wait in a collective for a missing peer",
        "program",
        RESTART,
        precedence=78,
        before_step=True,
    ),
    Cause(
        "compile_deadlock",
        "compiler lock deadlock",
        "program",
        RESTART,
        remedy="process_workers",
        precedence=79,
        before_step=True,
    ),
    Cause("lock_deadlock", "threads wait for each other", "program", RESTART, precedence=80, before_step=True),
    Cause(
        "leftover",
        "a leftover of an earlier run is on the GPUs",
        "program",
        AFTER_CLEANUP,
        precedence=89,
        before_step=True,
    ),
    Cause("foreign_process", "somebody else uses the GPU", "outside", PAGE, max_restarts=0, precedence=90),
    Cause(
        "zombie_gpu_memory", "GPU busy or filled with no process to see", "host", PAGE, max_restarts=0, precedence=91
    ),
    Cause("unkillable", "a process survives SIGKILL", "host", PAGE, max_restarts=0, precedence=92),
    Cause(
        "history_lost", "attempts are missing from the run directory", "outside", PAGE, max_restarts=0, precedence=93
    ),
    Cause("deterministic_failure", "the same failure again", "program", PAGE, max_restarts=0, precedence=94),
    Cause("none", "no cause named", "program", RESTART, max_restarts=1, precedence=99, before_step=True),
)
