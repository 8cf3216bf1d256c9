"""Which of all that is said about a death is its root."""

from __future__ import annotations

from dflash_supervise.core.facts import ExitReading, LogReading
from dflash_supervise.core.logscan import LogScanner
from dflash_supervise.core.naming import Named, name_death, root_of

TRACE = b"Traceback (most recent call last):\n"
STEPS = b"".join(b"step=%d loss=1.0\n" % step for step in range(1, 6))


def log(data: bytes) -> LogReading:
    scanner = LogScanner()
    scanner.feed(data)
    return scanner.reading(exists=True, size_bytes=len(data))


def root(data: bytes) -> Named:
    found = root_of(log(data))
    assert found is not None
    return found


def died(data: bytes, code: int | None = 1, signal: int | None = None, oom: int | None = None) -> Named:
    return name_death(ExitReading(code, signal, oom_kills=oom), log(data), "foreign")


def test_the_first_of_a_chain_is_the_root_and_a_wrapper_never_is() -> None:
    chain = TRACE + b"KeyError: 'a'\nDuring handling of the above exception, another exception occurred:\n"
    assert root(chain + TRACE + b"RuntimeError: later\n").key_line == "KeyError: 'a'"
    assert root(chain.replace(b"KeyError: 'a'", b"odd") + TRACE + b"OSError: alone\n").key_line == "OSError: alone"
    wrapped = TRACE + b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    assert root_of(log(wrapped)) is None


def test_an_exception_outranks_its_echo_on_other_ranks_but_not_one_that_came_later() -> None:
    watchdog = (
        b"[rank1]:[E ProcessGroupNCCL.cpp] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n"
    )
    key = b"[rank3]: Traceback (most recent call last):\n[rank3]: KeyError: 'x'\n"
    assert (root(key + watchdog).slug, root(key + watchdog).rank) == ("bug_in_code", "3")
    assert root(watchdog + key).slug == "nccl_timeout"


def test_the_rank_that_is_behind_in_its_collectives_is_the_one_they_waited_for() -> None:
    line = b"[rank%d]:[E x] [Rank %d] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=%d, OpType=A)\n"
    both = line % (0, 0, 88412) + line % (1, 1, 88411)
    assert (root(both).rank, root(both).line_number) == ("1", 1)
    assert root(line % (0, 0, 7) + line % (1, 1, 7)).rank == "0"


def test_a_line_before_an_unnamed_exception_is_its_root_only_when_it_is_that_kind_of_cause() -> None:
    error = TRACE + b"RuntimeError: odd\n"
    assert root(b"x: Permission denied\n" + error).slug == "rank_exception"
    assert root(error + b"x: Permission denied\n").slug == "permission_denied"
    assert root(b"No space left on device\n" + error).slug == "disk_full"


def test_what_training_survived_is_no_root() -> None:
    assert root_of(log(TRACE + b"KeyError: 'a'\n" + STEPS)) is None
    assert died(TRACE + b"KeyError: 'a'\n" + STEPS).slug == "none"
    assert died(STEPS + b"CUDA out of memory\nstep=6 loss=1.0\n").slug == "cuda_oom"


def test_the_thread_that_died_is_named_when_no_main_thread_was() -> None:
    thread = b"Exception in thread t-1:\n" + TRACE + b"OSError: of a thread\n"
    assert root(thread).key_line == "OSError: of a thread"
    assert root(thread + TRACE + b"OSError: of the main thread\n").key_line == "OSError: of the main thread"


def test_in_a_group_the_leaf_is_the_cause_and_the_group_the_line() -> None:
    head = b"  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: all (1 sub-exception)\n"
    for leaf, slug in ((b"TypeError: t", "bug_in_code"), (b"httpx.ReadTimeout", "remote_service_error")):
        found = root(head + b"    | Traceback (most recent call last):\n    | " + leaf + b"\n")
        assert (found.slug, found.key_line, found.line_number) == (slug, "ExceptionGroup: all (1 sub-exception)", 2)


def test_the_signal_that_a_launcher_reports_counts_where_the_exit_tells_none() -> None:
    report = b"E failed (exitcode: -9) local_rank: 3 (pid: 1) of binary: x\n"
    assert died(report, oom=1) == Named("host_oom_kill", report.decode().strip(), 1, "", "3")
    assert died(report).slug == "killed_externally"
    assert died(b"Received 1 death signal, shutting down\n" + TRACE + b"a.SignalException: got signal: 1\n").slug == (
        "tmux_killed_on_logout"
    )
    assert died(b"", code=127).slug == "command_not_found"
    assert name_death(ExitReading(3, None), None, "foreign") == Named("none")


def test_a_signal_is_explained_by_a_cause_that_is_nearer_to_the_root() -> None:
    loader = TRACE + b"RuntimeError: DataLoader worker (pid 4) is killed by signal: Killed.\n"
    assert died(loader, signal=9).slug == "dataloader_killed"
    assert (died(loader, signal=9, oom=1).slug, died(loader, signal=9, oom=1).line_number) == ("host_oom_kill", 2)
    assert died(b"error: Detected 1 oom_kill event in StepId=1.0\n", signal=9).slug == "cgroup_oom_kill"
    assert died(b"CANCELLED AT now DUE TO PREEMPTION ***\n", signal=15).slug == "spot_preemption"
    assert died(TRACE + b"OSError: x\n", signal=15).slug == "killed_externally"
    assert died(b"Out of memory: Killed process 3 (python)\n", signal=9).slug == "host_oom_kill"
