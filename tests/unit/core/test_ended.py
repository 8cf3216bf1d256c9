"""What an end means, by exit, log and kernel."""

from __future__ import annotations

import pytest

from dflash_supervise.core.facts import (
    AttemptFact,
    CauseMatch,
    ExitReading,
    LogReading,
    Missing,
    Observation,
    ProgressReading,
    Traceback,
)
from dflash_supervise.core.memory import AttemptMemory, Memory
from dflash_supervise.core.rules.ended import judge_end
from dflash_supervise.core.verdicts import Verdict
from dflash_supervise.core.view import View

NOTHING = LogReading(exists=True, size_bytes=80, body_bytes=0)
WORDS = LogReading(exists=True, size_bytes=800, body_bytes=700, last_line="step=9 loss=1")


def view(
    ended: ExitReading | None, log: LogReading | Missing = WORDS, *, step: int | None = 9, total: int | None = None
) -> View:
    progress = ProgressReading("training", step, total) if total is not None else Missing("none")
    seen = Observation(100.0, AttemptFact(1, 10.0), Missing("x"), progress, log, Missing("x"), Missing("x"), exit=ended)
    attempt = AttemptMemory(1, 10.0, step=step, steps_total=total, first_step_at_s=20.0 if step else None)
    return View(100.0, seen, Memory(attempt=attempt), {})


def judged(
    ended: ExitReading, log: LogReading | Missing = WORDS, kind: str = "foreign", **more: int | None
) -> tuple[Verdict, str]:
    end = judge_end(view(ended, log, **more), kind)
    assert end is not None and end.evidence
    return end.verdict, end.cause


def traced(*found: Traceback, last: bool = True, causes: tuple[CauseMatch, ...] = ()) -> LogReading:
    return LogReading(True, 900, 800, "", tracebacks=found, traceback_is_last=last, causes=causes)


def error(kind: str, line: int = 40, thread: str | None = None) -> Traceback:
    return Traceback(kind, "text", f"{kind}: text", line, "a.py:1", thread)


def test_nothing_is_judged_while_the_process_lives() -> None:
    assert judge_end(view(None), "foreign") is None


@pytest.mark.parametrize(
    ("ended", "kind", "want"),
    [
        (ExitReading(0, None, done=True), "bundled", (Verdict.COMPLETED, "none")),
        (ExitReading(0, None), "bundled", (Verdict.CRASH, "false_success")),
        (ExitReading(0, None), "foreign", (Verdict.COMPLETED, "none")),
        (ExitReading(None, None, witnessed=False, done=True), "bundled", (Verdict.COMPLETED, "none")),
        (ExitReading(None, None, witnessed=False), "bundled", (Verdict.ENDED_UNCLEAR, "none")),
        (ExitReading(None, None, witnessed=False), "foreign", (Verdict.ENDED_UNCLEAR, "none")),
        (
            ExitReading(127, None, exec_error="no such file: trainx"),
            "foreign",
            (Verdict.EARLY_CRASH, "command_not_found"),
        ),
        (ExitReading(126, None, exec_error="not executable"), "foreign", (Verdict.EARLY_CRASH, "permission_denied")),
        (ExitReading(None, None, exec_error="interrupted"), "foreign", (Verdict.EARLY_CRASH, "launch_interrupted")),
        (ExitReading(None, 9, oom_kills=1), "foreign", (Verdict.CRASH, "host_oom_kill")),
        (ExitReading(None, 9, oom_kills=0), "foreign", (Verdict.CRASH, "killed_externally")),
        (ExitReading(None, 9), "foreign", (Verdict.CRASH, "killed_externally")),
        (ExitReading(None, 11), "foreign", (Verdict.CRASH, "segfault")),
        (ExitReading(None, 7), "foreign", (Verdict.CRASH, "bus_error")),
        (ExitReading(None, 4), "foreign", (Verdict.CRASH, "illegal_instruction")),
        (ExitReading(None, 1), "foreign", (Verdict.CRASH, "tmux_killed_on_logout")),
        (ExitReading(None, 15), "foreign", (Verdict.CRASH, "killed_externally")),
        (ExitReading(None, 60), "foreign", (Verdict.CRASH, "killed_externally")),
        (ExitReading(139, None), "foreign", (Verdict.CRASH, "segfault")),
        (ExitReading(127, None), "foreign", (Verdict.CRASH, "command_not_found")),
        (ExitReading(3, None, ran_s=5.0), "foreign", (Verdict.CRASH, "none")),
        (ExitReading(76, None), "bundled", (Verdict.CRASH, "nan_loss")),
        (ExitReading(76, None), "foreign", (Verdict.CRASH, "none")),
        (ExitReading(143, None), "bundled", (Verdict.CRASH, "killed_externally")),
    ],
)
def test_the_exit_says_what_it_was(ended: ExitReading, kind: str, want: tuple[Verdict, str]) -> None:
    assert judged(ended, kind=kind) == want


@pytest.mark.parametrize(
    ("ended", "log", "line"),
    [
        (ExitReading(None, 9), WORDS, ""),
        (ExitReading(None, 15), WORDS, ""),
        (ExitReading(None, 9, oom_kills=1), WORDS, ""),
        (ExitReading(None, 1), WORDS, ""),
        (ExitReading(None, 9), traced(causes=(CauseMatch("killed_externally", "slurmstepd: CANCELLED", 9),)), "slurm"),
        (ExitReading(None, 11), WORDS, "step=9 loss=1"),
        (ExitReading(3, None), WORDS, "step=9 loss=1"),
    ],
)
def test_who_was_killed_could_not_say_so_and_its_last_line_is_no_key_line(
    ended: ExitReading, log: LogReading, line: str
) -> None:
    end = judge_end(view(ended, log), "foreign")
    assert end is not None and end.key_line.startswith(line) and bool(end.key_line) == bool(line)
    assert ("log" in [row.what for row in end.evidence]) == bool(line)


def test_before_the_first_step_a_crash_is_early_and_an_unread_log_is_not_an_empty_one() -> None:
    assert judged(ExitReading(None, 11), step=None)[0] is Verdict.EARLY_CRASH
    assert judged(ExitReading(1, None), Missing("not read"), step=None) == (Verdict.EARLY_CRASH, "none")


def test_no_log_is_an_end_with_nothing_beyond_our_header_and_no_better_cause() -> None:
    assert judged(ExitReading(1, None), NOTHING, step=None)[0] is Verdict.NO_LOG
    assert judged(ExitReading(1, None), LogReading(exists=False), step=None)[0] is Verdict.NO_LOG
    assert judged(ExitReading(None, None, witnessed=False), LogReading(exists=False), step=None)[0] is Verdict.NO_LOG
    assert judged(ExitReading(None, 11), NOTHING, step=None) == (Verdict.EARLY_CRASH, "segfault")
    assert judged(ExitReading(64, None), NOTHING, "bundled", step=None) == (Verdict.EARLY_CRASH, "config_error")


def test_exit_0_of_a_foreign_run_must_add_up() -> None:
    assert judged(ExitReading(0, None), traced(error("ValueError")))[0] is Verdict.ENDED_UNCLEAR
    assert judged(ExitReading(0, None), traced(error("ValueError"), last=False))[0] is Verdict.COMPLETED
    assert judged(ExitReading(0, None), step=9, total=100)[0] is Verdict.ENDED_UNCLEAR
    assert judged(ExitReading(0, None), step=100, total=100)[0] is Verdict.COMPLETED


@pytest.mark.parametrize(
    ("log", "code", "kind", "want"),
    [
        (traced(error("KeyError")), 70, "bundled", "bug_in_code"),
        (traced(error("RuntimeError")), 70, "bundled", "rank_exception"),
        (traced(error("torch.cuda.CustomError")), 1, "foreign", "rank_exception"),
        (traced(error("RuntimeError"), last=False), 1, "foreign", "none"),
        (traced(error("RuntimeError", thread="t"), error("SystemExit", 50)), 1, "foreign", "rank_exception"),
        (traced(error("RuntimeError", thread="t")), 1, "foreign", "rank_exception"),
        (
            traced(error("OSError"), causes=(CauseMatch("disk_full", "OSError: [Errno 28]", 40),)),
            1,
            "foreign",
            "disk_full",
        ),
        (traced(causes=(CauseMatch("cuda_oom", "CUDA out of memory", 10),)), 73, "bundled", "cuda_oom"),
        (
            traced(error("KeyError"), causes=(CauseMatch("cuda_oom", "CUDA out of memory", 10),)),
            1,
            "foreign",
            "cuda_oom",
        ),
        (
            traced(error("KeyError"), causes=(CauseMatch("permission_denied", "x: Permission denied", 9),)),
            1,
            "foreign",
            "bug_in_code",
        ),
        (
            traced(error("RuntimeError"), causes=(CauseMatch("fx_tracing_race", "Detected", 40),)),
            78,
            "bundled",
            "fx_tracing_race",
        ),
        (WORDS, 78, "bundled", "recompile_limit"),
    ],
)
def test_the_log_names_the_root(log: LogReading, code: int, kind: str, want: str) -> None:
    assert judged(ExitReading(code, None), log, kind)[1] == want


def test_an_abort_in_the_wake_of_a_named_cause_is_that_cause() -> None:
    wake = traced(error("RuntimeError"), causes=(CauseMatch("device_side_assert", "device-side assert triggered", 40),))
    assert judged(ExitReading(None, 6), wake)[1] == "device_side_assert"
    assert judged(ExitReading(None, 1), wake)[1] == "tmux_killed_on_logout"
