"""One look at a run from outside: what a log with its surroundings is called, and what it is not."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_supervise.core.diagnose import Diagnosis, diagnose

STEPS = "".join(f"INFO [train] step={step}/9000 loss=2.5\n" for step in range(1, 41))
WORK = {"util": 97, "mem_mib": 60000, "mem_total_mib": 81559, "power_w": 640}
IDLE = {**WORK, "util": 0, "power_w": 121}
SPIN = {**WORK, "util": 100, "power_w": 124}
FREE = {**IDLE, "mem_mib": 4, "power_w": 72}
BLIND = {"util": None, "mem_mib": None, "mem_total_mib": 81559, "power_w": None, "error": "UNKNOWN_ERROR"}
ALIVE = {"process_alive_seen": True, "ssh": "ok", "nvml": "ok"}
QUIET = {**ALIVE, "log_age_s": 2400, "elapsed_s": 2600}
DEAD = {"process_alive_seen": False, "ssh": "ok", "log_age_s": 900, "elapsed_s": 4000}
EARLY = "[model] building\n"
OOM = "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Process 7 has 70 GiB in use.\n"


def told(log: str, row: dict[str, Any] | None = None, **more: Any) -> Diagnosis:
    """A diagnosis of a host with eight GPUs, all as ``row``; without one they were not looked at."""
    gpu = more.pop("gpu", [row] * 8 if row else [])
    code, signal = more.pop("code", None), more.pop("signal", None)
    return diagnose([log.encode()], exit_code=code, signal=signal, gpu=gpu, observed=more.pop("seen", more))


def named(found: Diagnosis) -> tuple[str, str, str]:
    return found.verdict, found.cause, found.action


def test_a_log_alone_is_judged_as_far_as_it_speaks() -> None:
    assert named(told(STEPS)) == ("ended_unclear", "none", "alert_human")
    assert "the log alone" in told(STEPS).reason
    assert named(told(STEPS + "Traceback (most recent call last):\nKeyError: 'x'\n"))[:2] == ("crash", "bug_in_code")


def test_a_quiet_run_is_no_hang_while_anything_explains_the_silence() -> None:
    explained: list[dict[str, Any]] = [
        {**QUIET, "read_bytes_growing": True},
        {**QUIET, "child_process_names": ["ptxas"]},
        {**QUIET, "cpu_busy_cores": 31},
        {**ALIVE, "log_age_s": 60, "elapsed_s": 2600},
        {**ALIVE, "elapsed_s": 2600},
    ]
    assert [told(STEPS, IDLE, seen=seen).verdict for seen in explained] == ["running"] * 5
    assert told(STEPS, WORK, seen=QUIET).verdict == "running"
    assert told(STEPS, BLIND, seen=QUIET).verdict == "running"  # unknown accuses nobody
    assert told(STEPS + "saving checkpoint at iteration 40 to /x\n", IDLE, seen={**QUIET, "log_age_s": 900}).cause == (
        "checkpointing"
    )


@pytest.mark.parametrize(
    ("row", "more", "log", "cause"),
    [
        (SPIN, {}, "", "nccl_spin"),
        (IDLE, {}, "", "lock_deadlock"),
        (IDLE, {"cpu_busy_cores": 1.0}, "", "gil_deadlock"),
        (IDLE, {"cpu_busy_cores": 0}, "INFO [compile] graph 7 of 9\n", "compile_deadlock"),
        (IDLE, {"cpu_busy_cores": 0}, "", "lock_deadlock"),
        (BLIND, {"cpu_busy_cores": 0}, "", "lock_deadlock"),
        (IDLE, {}, "thread t-1 waits: compile_lock.py\n", "compile_deadlock"),
        (IDLE, {"child_process_names": ["pt_data_worker"]}, "", "dataloader_deadlock"),
        (IDLE, {"stacks": ["take_gil (ceval_gil.c:300)"]}, "", "gil_deadlock"),
        (IDLE, {}, "WARNING prefetch queue empty for 60s\n", "data_stall"),
        (BLIND, {"proc_states": {"D": 4, "S": 0}}, "", "data_stall"),
        (IDLE, {"lock_files": [{"path": "/l", "age_s": 9e4}]}, "", "stale_lock"),
        (IDLE, {"proc_states": {"T": 3}}, "", "stopped_process"),
    ],
)
def test_a_hang_is_named_by_what_stands_beside_it(
    row: dict[str, Any], more: dict[str, Any], log: str, cause: str
) -> None:
    found = told(STEPS + log, row, seen={**QUIET, **more})
    assert (found.verdict, found.cause) == ("hang", cause) and found.evidence


def test_a_stopped_process_that_works_is_none_and_one_that_survives_sigkill_is_a_leftover() -> None:
    assert told(STEPS, WORK, seen={**QUIET, "proc_states": {"T": 1}}).verdict == "running"
    stuck = {**QUIET, "proc_states": {"D": 2}}
    assert named(told(STEPS, IDLE, seen={**stuck, "note": "SIGKILL sent 60 s ago"}))[:2] == (
        "stale_process",
        "unkillable",
    )
    assert told(STEPS, IDLE, seen={**stuck, "sigkill_sent_s": 60}).cause == "unkillable"


def test_workers_that_are_gone_are_a_stall_only_when_the_others_wait() -> None:
    seven = {**ALIVE, "log_age_s": 3, "elapsed_s": 600, "workers_expected": 8, "workers_alive": 7}
    assert told(STEPS, WORK, seen=seven).verdict == "running"
    assert named(told(STEPS, SPIN, seen=seven))[:2] == ("partial_stall", "uneven_data")
    rank = "[rank3]: Traceback (most recent call last):\n[rank3]: KeyError: 'x'\n"
    found = told(STEPS + rank, SPIN, seen=seven)
    assert (named(found)[:2], found.rank) == (("partial_stall", "bug_in_code"), "3")


def test_a_dead_thread_is_a_stall_when_a_gpu_that_holds_a_model_does_no_work() -> None:
    dead = STEPS + "Exception in thread helper-1:\nTraceback (most recent call last):\nOSError: x\n"
    fresh = {**ALIVE, "log_age_s": 3, "elapsed_s": 600}
    assert told(dead, gpu=[WORK] * 7 + [IDLE], seen=fresh).verdict == "partial_stall"
    half_used = told(dead, gpu=[WORK] * 4 + [FREE] * 4, seen=fresh)
    assert (half_used.verdict, half_used.cause, half_used.key_line) == (
        "running",
        "metrics_logger_dead",
        "Exception in thread helper-1:",
    )


def test_notes_are_told_in_the_order_of_their_weight() -> None:
    fresh = {**ALIVE, "log_age_s": 3, "elapsed_s": 600}
    mild = "NVRM: Xid (PCI:0000:4d:00): 94, pid=7, name=%s, Contained"
    assert told(STEPS, WORK, seen={**fresh, "kernel_log": [mild % "python"]}).cause == "xid_94"
    assert told(STEPS, WORK, seen={**fresh, "kernel_log": [mild % "blender"]}).cause == "none"
    assert told(STEPS, WORK, seen={**fresh, "clock_step_s": 7200}).cause == "clock_jump"
    assert told("Warning: NaN or Inf found in input.\n" + STEPS, WORK, seen=fresh).cause == "none"
    assert told(EARLY, IDLE, seen={**fresh, "child_process_names": ["cc1plus"]}).cause == "compile"
    assert told(STEPS, WORK, seen={**fresh, "ckpt_dir_bytes_growing": True}).cause == "none"
    survived = "RuntimeError: CUDA out of memory\n" + STEPS
    assert told(survived, WORK, seen=fresh).cause == "oom_recovered"


def test_a_gpu_that_is_gone_is_a_fault_and_somebody_elses_error_is_not() -> None:
    lost = [WORK] * 7 + [{**BLIND, "error": "GPU_IS_LOST"}]
    assert named(told(STEPS, gpu=lost, seen=QUIET)) == ("gpu_fault", "gpu_lost", "alert_human")
    silent = {**QUIET, "nvml": "timeout: call blocked > 20 s"}
    assert told(STEPS, {**BLIND, "error": "NVML_TIMEOUT"}, seen=silent).verdict == "gpu_fault"
    fatal = "NVRM: Xid (PCI:0000:4d:00): 48, pid=7, name=python, DBE"
    assert (
        told(STEPS, WORK, seen={**ALIVE, "log_age_s": 2, "elapsed_s": 600, "kernel_log": [fatal]}).verdict == "running"
    )


def test_an_error_that_the_gpu_contained_allows_a_restart_unless_a_remap_waits() -> None:
    log = STEPS + "Traceback (most recent call last):\nRuntimeError: CUDA error: unspecified launch failure\n"
    seen = {**DEAD, "kernel_log": ["NVRM: Xid (PCI:0000:4d:00): 94, pid=7, name=python, Contained"]}
    assert named(told(log, FREE, code=1, seen=seen)) == ("gpu_fault", "xid_94", "restart")
    rows = [{**FREE, "remap_pending": True}] * 8
    assert told(log, gpu=rows, code=1, seen=seen).action == "alert_human"
    assert told(
        STEPS + "KeyError\nTraceback (most recent call last):\nKeyError: 'x'\n", FREE, code=1, seen=seen
    ).cause == ("bug_in_code")


@pytest.mark.parametrize(
    ("ssh", "cause", "action"),
    [
        ("client_loop: send disconnect: Broken pipe", "ssh_connection_lost", "wait"),
        ("Host key verification failed.", "host_key_changed", "alert_human"),
        ("kex: Too many sessions", "too_many_sessions", "wait"),
        ("u@h: Permission denied (publickey).", "auth_error", "alert_human"),
        ("the node is being preempted", "spot_preemption", "restart"),
    ],
)
def test_silence_of_the_host_concludes_nothing_about_the_run(ssh: str, cause: str, action: str) -> None:
    assert named(told(STEPS, seen={"ssh": ssh})) == ("host_unreachable", cause, action)
    assert told(STEPS, code=0, seen={"ssh": ssh}).verdict != "host_unreachable"


def test_who_vanished_with_the_host_or_the_session_is_told_so() -> None:
    assert told(STEPS, seen={**DEAD, "uptime_s": 60}).cause == "host_reboot"
    assert told(STEPS, seen={**DEAD, "kernel_log": ["[    0.000000] Linux version 6"]}).cause == "host_reboot"
    assert told(STEPS, seen={**DEAD, "pid1_age_s": 60}).cause == "container_restarted"
    logout = ["systemd[1]: session-1.scope: Killing process 9 (tmux) with signal SIGHUP."]
    gone = {**DEAD, "tmux": "no server running on /tmp/tmux-0/default", "kernel_log": logout}
    assert named(told(STEPS, seen=gone)) == ("crash", "tmux_killed_on_logout", "restart")
    assert told(STEPS, signal=9, seen={**DEAD, "kernel_log": logout}).cause == "tmux_killed_on_logout"
    assert told(STEPS, seen=DEAD).verdict == "ended_unclear"


def test_gpus_that_are_held_before_a_launch_are_a_leftover_or_somebody_elses() -> None:
    busy = {**FREE, "util": 100}
    assert named(told("", busy, seen=DEAD)) == ("stale_process", "zombie_gpu_memory", "alert_human")
    orphan, user = {"pid": 7, "name": "python", "ppid": 1}, {"pid": 7, "name": "python", "ppid": 400}
    assert told("", IDLE, seen={**DEAD, "gpu_processes": {"0": [orphan]}}).action == "restart_after_cleanup"
    assert told("", IDLE, seen={**DEAD, "gpu_processes": {"0": [user]}}).cause == "foreign_process"
    assert told("", FREE, seen={**DEAD, "log_exists": False}).verdict == "no_log"


def test_out_of_memory_before_the_first_step_may_be_the_fault_of_who_holds_the_rest() -> None:
    after = {**DEAD, "elapsed_s": 60}
    assert told(EARLY + OOM, FREE, code=1, seen=after).verdict == "early_crash"
    held = told(EARLY + OOM, IDLE, code=1, seen=after)
    assert named(held) == ("stale_process", "zombie_gpu_memory", "alert_human")
    young = {**after, "gpu_processes": {"0": [{"pid": 7, "name": "x", "age_s": 9}]}}
    assert told(EARLY + OOM, FREE, code=1, seen=young).verdict == "early_crash"
    nameless = {**after, "gpu_processes": {"0": [{"pid": 7, "name": "x"}]}}
    assert told(EARLY + OOM, FREE, code=1, seen=nameless).verdict == "stale_process"


def test_the_host_says_what_an_exit_cannot() -> None:
    assert (
        told(STEPS + "Killed\n", code=137, seen={**DEAD, "memory_events": {"oom_kill": 2}}).cause == "cgroup_oom_kill"
    )
    full = STEPS + "OSError: [Errno 28] No space left on device\n"
    assert told(full, code=1, seen={**DEAD, "df": {"inode_use_pct": 100}}).cause == "inodes_full"
    assert told(full, code=1, seen=DEAD).cause == "disk_full"
    assert told(STEPS, signal=7, seen={**DEAD, "shm": {"shm_free_mib": 0}}).cause == "shm_exhausted"
    assert told(STEPS, signal=7, seen=DEAD).cause == "bus_error"
    assert told(STEPS, signal=15, seen={**DEAD, "note": "Spot interruption notice"}).cause == "spot_preemption"
    port = "OSError: [Errno 98] Address already in use\n"
    assert told(port, code=1, seen={**DEAD, "listening_29500": {"pid": 3, "age_s": 1}}).verdict == "early_crash"


def test_a_completion_marker_decides_and_a_finished_training_stays_finished() -> None:
    assert told(STEPS, code=0, seen={**DEAD, "done_json": True}).verdict == "completed"
    assert named(told(STEPS, code=0, seen={**DEAD, "done_json": False})) == ("crash", "false_success", "restart")
    done, abort = "Training complete\n", "terminate called after throwing an instance of 'c10::Error'\n"
    assert named(told(STEPS + done + abort, code=134)) == ("completed", "teardown_nccl_timeout", "none")
    assert told(STEPS + done + STEPS.replace("=1", "=2") + abort, code=134).cause == "abort"
    assert told(STEPS + abort + done, code=134).verdict == "crash"
    noise = "Exception in thread IntMsgThr:\nTraceback (most recent call last):\nConnectionResetError: x\n"
    assert told(STEPS.replace("/9000", "") + "wandb: Find logs at: ./x\n" + noise, code=0).verdict == "completed"
    assert told(STEPS.replace("/9000", "") + noise, code=0).verdict == "ended_unclear"


def test_what_fails_before_the_first_step_is_not_tried_again_unless_it_may_pass() -> None:
    error = EARLY + "Traceback (most recent call last):\n"
    assert named(told(error + "RuntimeError: odd\n", code=1)) == (
        "early_crash",
        "rank_exception",
        "no_restart_fix_config",
    )
    assert told(error + "httpx.ConnectError: refused\n", code=1).action == "restart"
    assert named(told("", code=1)) == ("no_log", "none", "no_restart_fix_config")
    assert named(told(EARLY, code=1)) == ("early_crash", "none", "alert_human")
