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
    Cause(
        "fx_tracing_race",
        "FX tracing race between threads",
        "program",
        RESTART,
        None,
        "process_workers",
        10,
        True,
        (r"Detected that you are using FX to symbolically trace a dynamo-optimized function",),
    ),
    Cause(
        "cuda_oom",
        "CUDA out of memory",
        "user",
        FIX_CONFIG,
        0,
        None,
        20,
        False,
        (
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
        None,
        None,
        22,
        False,
        (r"No space left on device", r"\[Errno 28\]", r"\bENOSPC\b"),
    ),
    Cause(
        "port_in_use",
        "port already in use",
        "host",
        AFTER_CLEANUP,
        1,
        "another_port",
        24,
        True,
        (r"Address already in use", r"\bEADDRINUSE\b", r"address already in use"),
    ),
    Cause(
        "import_error",
        "import failed",
        "user",
        FIX_CONFIG,
        0,
        None,
        30,
        False,
        (r"^(?:ModuleNotFoundError|ImportError): ",),
    ),
    Cause(
        "device_side_assert",
        "device-side assert",
        "program",
        FIX_CONFIG,
        0,
        None,
        28,
        False,
        (r"device-side assert triggered",),
    ),
    Cause(
        "cuda_illegal_memory_access",
        "illegal memory access on the GPU",
        "program",
        RESTART,
        1,
        None,
        29,
        False,
        (r"an illegal memory access was encountered",),
    ),
    Cause(
        "nccl_timeout",
        "collective timed out",
        "program",
        RESTART,
        None,
        None,
        60,
        False,
        (r"Watchdog caught collective operation timeout",),
    ),
    Cause(
        "permission_denied",
        "permission denied",
        "user",
        FIX_CONFIG,
        0,
        None,
        35,
        False,
        (r"^PermissionError: ", r": Permission denied$"),
    ),
    Cause(
        "command_not_found",
        "command not found",
        "user",
        FIX_CONFIG,
        0,
        None,
        36,
        False,
        (r": command not found$",),
    ),
    Cause(
        "segfault",
        "segmentation fault",
        "program",
        RESTART,
        1,
        None,
        40,
        True,
        (r"Fatal Python error: Segmentation fault",),
    ),
    Cause("illegal_instruction", "illegal instruction", "host", PAGE, 0, None, 41, False),
    Cause("bus_error", "bus error", "program", RESTART, 1, None, 42, True),
    Cause("abort", "aborted", "program", RESTART, 1, None, 43, True, (r"Fatal Python error: Aborted",)),
    Cause("host_oom_kill", "killed by the kernel for lack of memory", "host", FIX_CONFIG, 0, None, 12),
    Cause("killed_externally", "killed by somebody", "outside", RESTART, 1, None, 14, True),
    Cause("tmux_killed_on_logout", "hung up at logout", "outside", RESTART, 1, None, 15, True),
    Cause("config_error", "configuration refused", "user", FIX_CONFIG, 0, None, 45),
    Cause(
        "missing_file",
        "data missing or broken",
        "user",
        FIX_CONFIG,
        0,
        None,
        46,
        False,
        (r"^FileNotFoundError: ",),
    ),
    Cause("data_stall", "data did not come", "host", RESTART, None, None, 62),
    Cause("remote_service_error", "a remote service failed", "outside", RESTART, None, None, 47, True),
    Cause("nan_loss", "non-finite loss", "program", PAGE, 0, None, 44),
    Cause("duplicate_session", "a later attempt owns the output folder", "user", PAGE, 0, None, 13),
    Cause("recompile_limit", "recompiled after warm-up", "program", RESTART, 1, "process_workers", 48, True),
    Cause("false_success", "exit 0 without the completion marker", "program", RESTART, 1, None, 49),
    Cause("bug_in_code", "bug in the training code", "program", FIX_CONFIG, 0, None, 70),
    Cause("rank_exception", "uncaught exception", "program", RESTART, 1, None, 71),
    Cause(
        "launch_interrupted",
        "the launch was interrupted before the trainer ran",
        "host",
        RESTART,
        None,
        None,
        11,
        True,
    ),
    Cause("lock_deadlock", "threads wait for each other", "program", RESTART, None, None, 80, True),
    Cause(
        "compile_deadlock",
        "compiler lock deadlock",
        "program",
        RESTART,
        None,
        "process_workers",
        79,
        True,
        (),
    ),
    Cause("nccl_spin", "ranks wait in a collective for a missing peer", "program", RESTART, None, None, 78, True),
    Cause("stopped_process", "process is stopped (state T)", "outside", PAGE, 0, None, 77),
    Cause("worker_dead", "a worker thread is dead", "program", RESTART, None, None, 76, True),
    Cause(
        "leftover",
        "a leftover of an earlier run is on the GPUs",
        "program",
        AFTER_CLEANUP,
        None,
        None,
        89,
        True,
    ),
    Cause("foreign_process", "somebody else uses the GPU", "outside", PAGE, 0, None, 90),
    Cause("zombie_gpu_memory", "GPU busy or filled with no process to see", "host", PAGE, 0, None, 91),
    Cause("unkillable", "a process survives SIGKILL", "host", PAGE, 0, None, 92),
    Cause("history_lost", "attempts are missing from the run directory", "outside", PAGE, 0, None, 93),
    Cause("deterministic_failure", "the same failure again", "program", PAGE, 0, None, 94),
    Cause("host_reboot", "the host rebooted", "host", RESTART, None, None, 9, True),
    Cause("none", "no cause named", "program", RESTART, 1, None, 99, True),
)
