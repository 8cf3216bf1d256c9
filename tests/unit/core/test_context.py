"""What somebody wrote down beside a log, and what the kernel's log says."""

from __future__ import annotations

import pytest

from dflash_supervise.core.context import Context, Holder, read_context, read_signal
from dflash_supervise.core.kernel_log import read_kernel_log


def test_a_signal_is_read_by_number_and_by_name() -> None:
    assert [read_signal(value) for value in (None, "", 9, "-9", "kill", "SIGTERM")] == [None, None, 9, 9, 9, 15]
    with pytest.raises(ValueError, match="no signal"):
        read_signal("SIGNOTHING")


def test_nothing_that_was_not_said_becomes_a_zero() -> None:
    empty = read_context({})
    assert empty == Context() and empty.ended is False
    odd = read_context(
        {"log_age_s": "old", "workers_alive": True, "proc_states": 7, "lock_files": "x"}, [{"util": "n/a"}]
    )
    assert (odd.log_age_s, odd.workers_alive, odd.states, odd.old_locks) == (None, None, {}, ())
    assert odd.gpus[0].util_pct is None and odd.gpus[0].power_limit_w is None


def test_the_power_limit_is_told_or_follows_from_the_memory_of_the_card() -> None:
    rows = [{"mem_total_mib": 81559}, {"mem_total_mib": 81920}, {"mem_total_mib": 9856}, {"power_limit_w": 350.0}]
    assert [gpu.power_limit_w for gpu in read_context({}, rows).gpus] == [700.0, 400.0, 250.0, 350.0]


def test_slow_down_reasons_are_read_as_word_list_and_mask() -> None:
    rows = [
        {"throttle": "HW_THERMAL_SLOWDOWN"},
        {"throttle": ["sw_power_cap", "thermal"]},
        {"clocks_event_reasons": 0x40},
        {"throttle": True},
        {"throttle": "NONE"},
        {"throttle": 0x4},
        {"throttle": None},
        {},
    ]
    assert read_context({}, rows).slowed == (0, 1, 2, 3)


def test_a_lock_is_old_when_it_is_older_than_the_launch_or_its_owner_is_gone() -> None:
    locks = [
        {"path": "a", "age_s": 900},
        {"path": "b", "age_s": 10},
        {"path": "c", "owner_alive": False},
        {"path": "d", "age_s": 900, "owner_alive": True},
        {"age_s": 901},
    ]
    assert read_context({"lock_files": locks, "elapsed_s": 100}).old_locks == ("a", "c", "a lock file")
    assert read_context({"lock_files": locks}).old_locks == ("c",)


def test_what_grows_who_holds_and_who_listens_is_found_by_its_name() -> None:
    seen = read_context(
        {
            "ckpt_dir_bytes_growing": True,
            "net_bytes_growing": False,
            "gpu_processes": {"4": [{"pid": 7, "name": "python", "age_s": 9.0, "ppid": 1, "user": "a", "used_mib": 5}]},
            "listening_29500": {"pid": 8, "cmd": "x"},
            "disk": {"inodes_free": 0, "note": "df -i"},
            "done_json": False,
            "inode_changed": True,
        }
    )
    assert seen.growing == ("ckpt_dir_bytes_growing",)
    assert seen.holders == (Holder(7, 9.0, 1, True, "a", 5.0),) and seen.listeners == (Holder(8),)
    assert (seen.number("inode", "free"), seen.number("nothing")) == (0.0, None)
    assert (seen.texts, seen.done_marker, seen.rotated) == (("df -i",), False, True)
    assert read_context({"previous_log_size": 9, "log_size_now": 3}).rotated is True


@pytest.mark.parametrize("observed", [{"log_age_s": -5.0}, {"clock_step_s": -3600}, {"note": "the clock was stepped"}])
def test_a_stepped_clock_is_seen(observed: dict[str, object]) -> None:
    assert read_context(observed).stepped_clock is True and read_context({}).stepped_clock is False


def test_the_kernel_log_names_hardware_kills_and_stuck_file_systems() -> None:
    said = read_kernel_log(
        [
            "[    0.000000] Linux version 6.8.0",
            "[1] NVRM: Xid (PCI:0000:9d:00): 79, pid=30305, name=python, GPU has fallen off the bus.",
            "[1] NVRM: Xid (PCI:0000:9d:00): 48, pid='<unknown>', name=<unknown>, DBE",
            "[1] NVRM: Xid (PCI:0000:9d:00): 31, pid=1, name=python, MMU Fault",
            "[2] Out of memory: Killed process 1 (chrome)",
            "[2] Memory cgroup out of memory: Killed process 77 (python) total-vm:1kB",
            "[2] Out of memory: Killed process 78 (python)",
            "[3] nfs: server store-3 not responding, still trying",
            "[4] systemd[1]: session-1.scope: Killing process 9 (tmux) with signal SIGHUP.",
            "an ordinary line",
        ]
    )
    assert [(xid.slug, xid.pid, xid.name) for xid in said.xids] == [
        ("xid_79", 30305, "python"),
        ("xid_48_ecc", None, "<unknown>"),
    ]
    assert "process 77" in said.oom and said.of_cgroup and "nfs" in said.stuck_io
    assert "scope" in said.logout and "Linux" in said.fresh_boot
