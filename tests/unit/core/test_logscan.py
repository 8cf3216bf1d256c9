"""The scanner reads bytes as they come: any cut of the same log gives the same reading."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_supervise.core.facts import LogReading
from dflash_supervise.core.logline import LINE_BYTES
from dflash_supervise.core.logscan import MAX_MATCHES, MAX_SHAPES, LogScanner
from dflash_supervise.core.logsteps import LEARNS_ANEW, MAX_BOUND, MAX_PLANS, bar_step, number_of
from dflash_supervise.core.logtrace import MAX_OPEN_LINES, MAX_STREAMS

TRACE = b"""[dflash] run=x attempt=1 started=2026-01-01T00:00:00Z argv=python
step=1 loss=5.4 tok/s=1,200
Traceback (most recent call last):
  File "a.py", line 3, in f
    x
  File "b.py", line 9, in g
    y
KeyError: 'bucket'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "c.py", line 1, in h
RuntimeError: later
"""


def read(data: bytes, *cuts: int) -> LogReading:
    scanner, at = LogScanner(), 0
    for cut in sorted(cuts):
        scanner.feed(data[at:cut])
        at = max(at, cut)
    scanner.feed(data[at:])
    return scanner.reading(exists=True, size_bytes=len(data))


PIECE = [
    b"step=12 loss=0.5 tok/s=900\n",
    b"\r",
    b"\n",
    b"\r\n",
    b"\x00",
    b"\xff\xfe",
    b"\x1b[31mred\x1b[0m\n",
    b"x" * 5000,
    b"  5%|\r 10%|\r",
    b"Traceback (most recent call last):\n",
    b'  File "a.py", line 3, in f\n',
    b"KeyError: 'a'\n",
    b"Exception in thread drafter-1:\n",
    b"[rank3]: RuntimeError: CUDA out of memory\n",
    b"[rank3]: Traceback (most",
    b"[dflash] ended code=1\n",
    b" recent call last):\n",
    b"[default2]:[rank2]: step=%d loss=nan\n" % 7,
    b"{'loss': 1.25, 'epoch': 0.1}\n",
    b"step=13 loss=0.6 tok/s=901\n" * 4,
    b" 160/2754 [32:16<8:43:07, 12.15s/it]",
    b"\r  5%|#   | 160/2754 [32:16<8:43:07, 12.15s/it]",
    b"  + Exception Group Traceback (most recent call last):\n",
    b"  | ExceptionGroup: two (2 sub-exceptions)\n",
    b"    | Traceback (most recent call last):\n    | httpx.ReadTimeout\n",
    b"E failed (exitcode: -9) local_rank: 3 (pid: 12913) of binary: x\n",
    b"Root Cause (first observed failure):\n  rank      : 2 (local_rank: 2)\n",
    b"saving checkpoint at iteration 7 to /x\n",
    b"During handling of the above exception, another exception occurred:\n",
]
PIECES = st.lists(st.sampled_from(PIECE), max_size=30)


@settings(max_examples=200, deadline=None)
@given(PIECES, st.lists(st.integers(0, 60_000), max_size=12))
def test_any_cut_of_the_same_bytes_gives_the_same_reading(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    assert repr(read(data, *cuts)) == repr(read(data))  # nan is not equal to itself


def test_tracebacks_are_folded_to_what_names_them() -> None:
    reading = read(TRACE)
    first, second = reading.tracebacks
    assert (first.exc_type, first.message, first.where, first.line_number) == ("KeyError", "'bucket'", "b.py:9", 8)
    assert second.exc_type == "RuntimeError" and reading.traceback_is_last is True
    assert (reading.step, reading.loss, reading.tokens_per_s) == (1, 5.4, 1200.0)


def test_a_step_after_a_traceback_shows_that_it_was_caught() -> None:
    assert read(TRACE + b"step=2 loss=nan\n").traceback_is_last is False


def test_our_own_lines_are_not_the_trainers_words() -> None:
    reading = read(b"[dflash] run=x\n[dflash] ended code=0\n")
    assert reading.body_bytes == 0 and reading.last_line == ""
    assert read(b"[dflash] run=x\n[dflash] half").body_bytes == 0
    assert read(b"[dflash] run=x\nhalf a line").body_bytes == 11


def test_a_thread_and_a_rank_are_named() -> None:
    data = b"""Exception in thread drafter-2:
Traceback (most recent call last):
  File "x.py", line 1, in run
an ordinary line of another thread, in between
RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function.
[rank3]: Traceback (most recent call last):
[rank3]:   File "y.py", line 2, in z
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB
"""
    reading = read(data)
    assert [found.thread for found in reading.tracebacks] == ["drafter-2", None]
    assert [(found.slug, found.rank) for found in reading.causes] == [("fx_tracing_race", None), ("cuda_oom", "3")]
    assert reading.tracebacks[1].rank == "3"


def test_a_line_of_any_length_is_cut_and_a_progress_bar_counts_as_its_last_state() -> None:
    reading = read(b"a" * 10_000_000 + b"\n")
    assert len(reading.tail[0]) == LINE_BYTES
    assert read(b"  1%|\r 50%|\r 99%|").last_line == " 99%|"


def test_many_tracebacks_keep_the_first_and_the_last() -> None:
    one = b"Traceback (most recent call last):\nValueError: %d\n"
    reading = read(b"".join(one % index for index in range(100)))
    assert [found.message for found in reading.tracebacks] == ["0", "1", "2", "3", "96", "97", "98", "99"]


def test_more_ranks_than_a_log_can_have_cost_no_memory() -> None:
    data = b"".join(b"[rank%d]: hello\n" % index for index in range(3000))
    scanner = LogScanner()
    scanner.feed(data)
    scanner.feed(b"".join(b"[rank%d]: Traceback (most recent call last):\n" % index for index in range(3000)))
    assert len(scanner.tracer._streams) <= MAX_STREAMS


def test_an_exception_line_without_a_message_and_a_broken_number_are_read() -> None:
    reading = read(
        b"Traceback (most recent call last):\n  odd\nKeyboardInterrupt\nstep=3 loss=1.2.3 tok/s=1.2.3\n[] x\n[rank1]:\n"
    )
    assert (
        reading.tracebacks[0].exc_type == "KeyboardInterrupt" and reading.loss is None and reading.tokens_per_s is None
    )
    assert read(b"").tail == () and read(b"\n\n").tail == ()


def test_prose_that_names_a_step_is_no_progress_after_a_traceback() -> None:
    reading = read(TRACE + b"[exit] code=70 reason=injected fault in step 5\n[checkpoint] step=9 saved\n")
    assert reading.traceback_is_last is True and reading.step == 9
    assert read(b"failed in step 5\n").step is None and read(b"step 7 loss 2.5\n").step == 7


def test_a_step_in_another_shape_or_stream_is_no_progress_once_one_was_learned() -> None:
    learned = b"".join(b"INFO [train] step=%d loss=2.5 tok/s=900\n" % step for step in range(1, 9))
    forged = b"sample: step=999999 loss=0.01 tok/s=1\n[rank7]: INFO [train] step=888888 loss=0.01 tok/s=1\n"
    before, after = read(learned), read(learned + forged)
    assert (
        (after.step, after.loss, after.tokens_per_s) == (before.step, before.loss, before.tokens_per_s) == (8, 2.5, 900)
    )
    assert after.progress_lines == before.progress_lines
    assert read(learned + forged + b"INFO [train] step=9 loss=2.4 tok/s=901\n").step == 9


def test_a_new_shape_is_learned_when_it_goes_on_rising_while_the_old_one_is_silent() -> None:
    old = b"".join(b"INFO [train] step=%d loss=2.5\n" % step for step in range(1, 90))
    new = b"".join(b"[v2] iter %d: loss 2.4, time 12.1ms\n" % step for step in range(90, 90 + LEARNS_ANEW + 3))
    assert read(old + new).step == 90 + LEARNS_ANEW + 2
    heartbeat = b"[alive] step=89 loss=0.0\n" * 40
    assert read(old + heartbeat).progress_lines == read(old).progress_lines


def test_two_shapes_of_one_trainer_are_both_learned_early_and_a_fall_begins_anew() -> None:
    lines = b"".join(
        b"[Rank 0] step=%d, skipped=0\nepoch=0/global_step=%d, Samples=14.2\n" % (step, step) for step in range(2, 40)
    )
    assert read(lines).step == 39 and read(lines).step_lines >= 70
    assert read(b"step=5 loss=1\nstep=4 loss=1\nstep=5 loss=1\n").step == 5
    many = b"".join(
        b"%s step=%d loss=1\n" % (name, step) for step in range(1, 5) for name in b"abcdefgh".hex(" ").encode().split()
    )
    assert read(many).step == 4 and MAX_BOUND == 4
    scanner = LogScanner()
    scanner.feed(b"".join(b"%s step=1 loss=1\n" % (b"x" * length) for length in range(1, 90)))
    assert len(scanner.steps._seen) <= 64


def test_the_steps_of_well_known_trainers_are_read() -> None:
    lines = {
        b"\x1b[32m[titan] - root - INFO - \x1b[31mstep: 20  \x1b[32mloss:  7.1  tps: 7,100\x1b[39m\n": (20, 7.1),
        b" [2026-05-02] iteration    11960/   50000 | lm loss: 2.425800E+00 |\n": (11960, 2.4258),
        b"iter 300: loss 3.1000, time 250.1ms, mfu 41.2%\n": (300, 3.1),
        b"Epoch: [11][2000/5004]\tTime 0.466\tLoss 2.4066e+00 (2.31e+00)\n": (2000, 2.4066),
        b"epoch 0 | batch    50/41200 | lr 0.00010 | loss  6.380 | ppl   592.00\n": (50, 6.38),
        b"| epoch 001:    200 / 1374 loss=14.351, ppl=20899.56\n": (200, 14.351),
        b"| epoch 028 | loss 3.976 | ppl 4.61 | num_updates 9165 | lr 0.0003\n": (9165, 3.976),
        b"Epoch 3:  45%|####      | 450/1000 [01:23<01:41,  5.4it/s, loss=0.5]\n": (450, 0.5),
        b"{'loss': 1.3075, 'grad_norm': 1.05, 'epoch': 0.79}\n": (None, 1.3075),
    }
    for line, (step, loss) in lines.items():
        reading = read(line)
        assert (reading.step, reading.loss, reading.stepped) == (step, loss, True), line


def test_what_only_looks_like_a_step_is_none() -> None:
    for line in (
        b"Loading checkpoint shards:  12%|#2        | 4/33 [01:40<12:05, 25.0s/it]\n",
        b"  0%|          | 0/2754 [00:00<?, ?it/s]\n",
        b"saving checkpoint at iteration   12000 to /mnt/ckpt\n",
        b"epoch done\n",
    ):
        assert read(line).stepped is False, line
    assert bar_step("no bar") is None and number_of("1.2.3") is None


def test_a_bar_without_a_line_end_shows_the_step_as_of_now() -> None:
    reading = read(b"Train:   1%|  | 30/2754 [00:12<9:15:11]\rTrain:   2%|  | 60/2754 [00:24<9:14:59]")
    assert (reading.step, reading.steps_total, reading.in_bar, reading.stepped) == (60, 2754, True, True)
    assert reading.progress is not None and "60/2754" in reading.progress.key_line


def test_a_loss_that_is_not_finite_or_jumps_is_told_until_it_is_over() -> None:
    fine = b"".join(b"step=%d loss=2.%02d tok/s=900\n" % (step, step % 90) for step in range(1, 60))
    worse = read(fine + b"step=60 loss=nan tok/s=900\nstep=61 loss=nan tok/s=900\n")
    assert [(one.slug, one.line_number) for one in worse.causes] == [("nan_loss", 60)]
    assert read(fine + b"step=60 loss=nan\nstep=61 loss=2.1\n").causes == ()
    high = b"step=60 loss=9.5 tok/s=900\nstep=61 loss=3.9 tok/s=900\n"
    assert [(one.slug, one.line_number) for one in read(fine + high).causes] == [("loss_spike", 60)]
    assert read(fine + high + b"step=62 loss=2.2 tok/s=900\n").causes == ()


def test_a_learned_shape_keeps_its_numbers_when_one_of_them_is_odd() -> None:
    fine = b"".join(b"step=%d/90 loss=2.5 tok/s=1,%03d\n" % (step, step) for step in range(1, 9))
    assert (read(fine).steps_total, read(fine).tokens_per_s) == (90, 1008.0)
    odd = read(fine + b"step=9/90 loss=2.5.1 tok/s=1,009\n" + b"step=10/90 loss=2.5.1 tok/s=1,010\n")
    assert odd.step == 10 and odd.loss is None
    scanner = LogScanner()
    scanner.feed(fine + b"".join(b"step=%d/90 loss=2.5 %s\n" % (n, b"ab" * n) for n in range(9, 3 * MAX_PLANS)))
    assert (
        len(scanner.steps._plans) <= MAX_PLANS and scanner.reading(exists=True, size_bytes=1).step == 3 * MAX_PLANS - 1
    )


def test_prefixes_of_launchers_are_no_part_of_a_line() -> None:
    for prefix, rank in (
        (b"[default3]:[rank3]: ", "3"),
        (b"[rank: 2] ", "2"),
        (b"[1,4]<stderr>:", "4"),
        (b"5: ", "5"),
        (b"(WorkerDict pid=123, ip=10.0.0.1) ", None),
        (b"2026-05-02T09:00:00.123456789Z ", None),
    ):
        lines = [b"Traceback (most recent call last):", b'  File "a.py", line 1, in f', b"KeyError: 'x'"]
        reading = read(b"".join(prefix + line + b"\n" for line in lines))
        assert [(one.key_line, one.rank) for one in reading.tracebacks] == [("KeyError: 'x'", rank)], prefix


def test_groups_boxes_children_and_chains_are_told_apart() -> None:
    group = read(b"""  + Exception Group Traceback (most recent call last):
  |   File "/a.py", line 1, in m
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/b.py", line 2, in n
    | httpx.ConnectError: All connection attempts failed
    +------------------------------------
plain line
Traceback (most recent call last):
ValueError: alone
""")
    whole, leaf, alone = group.tracebacks
    assert (leaf.exc_type, leaf.group, leaf.group_line_number) == ("httpx.ConnectError", whole.key_line, 3)
    assert alone.group == "" and leaf.slug == "remote_service_error"
    box = read(
        "\u256d\u2500 Traceback (most recent call last) \u2500\u256e\n\u2502 /srv/t.py:288 in fit \u2502\n"
        "\u2502 raise RuntimeError('DataLoader worker exited unexpectedly') \u2502\n\u2570\u2500\u256f\n"
        "OSError: gone\n".encode()
    )
    assert [(one.exc_type, one.where) for one in box.tracebacks] == [("OSError", "/srv/t.py:288")]
    assert box.causes == ()  # what stands in a traceback's frames is code
    child = read(b"Process SpawnProcess-1:\nTraceback (most recent call last):\nOSError: x\n")
    assert child.tracebacks[0].thread == "SpawnProcess-1" and child.tracebacks[0].head_line_number == 1
    spawned = read(
        b"-- Process 2 terminated with the following error:\nTraceback (most recent call last):\nOSError: x\n"
    )
    assert spawned.tracebacks[0].rank == "2"
    assert [one.chained for one in read(TRACE).tracebacks] == [False, True]


def test_an_exception_that_python_ignored_ended_nothing() -> None:
    for line in (b"Exception ignored in: <function A.__del__ at 0x7f>", b"--- Logging error ---"):
        assert read(line + b"\nTraceback (most recent call last):\nAttributeError: x\n").tracebacks == ()


def test_a_traceback_without_an_end_is_given_up() -> None:
    endless = b"Traceback (most recent call last):\n" + b"  code\n" * (MAX_OPEN_LINES + 5)
    assert read(endless + b"OSError: of somebody else\n").tracebacks == ()
    assert (
        read(b"Traceback (most recent call last):\n\xff\xfe INFO: no exception\nOSError: x\n").tracebacks[0].message
        == "x"
    )


def test_an_accusation_is_the_first_that_was_not_survived_and_no_mere_warning() -> None:
    steps = b"step=%d loss=1.0\n"
    caught = b"CUDA out of memory, skipping\n" + b"".join(steps % step for step in range(5))
    fatal = b"RuntimeError: CUDA out of memory.\n"
    assert [one.line_number for one in read(caught + fatal).causes] == [7]
    warned = b"UserWarning: Warning: Address already in use\nOSError: Address already in use\n"
    assert [(one.line_number, one.warns) for one in read(warned).causes] == [(2, False)]
    flood = b"".join(b"[rank%d]: CUDA out of memory\n" % rank for rank in range(200))
    assert len(read(flood).causes) == MAX_MATCHES


def test_reports_of_launchers_name_rank_code_and_signal() -> None:
    told = {
        b"E failed (exitcode: -9) local_rank: 3 (pid: 12913) of binary: x": (-9, 9, "3"),
        b"['python', 'x.py'] exits with return code = -7": (-7, 7, None),
        b"mpirun noticed that process rank 4 with PID 0 on node n exited on signal 11 (Segmentation fault).": (
            None,
            11,
            "4",
        ),
        b"srun: error: n1: task 5: Killed": (None, 9, "5"),
        b"srun: error: n1: tasks 0-3: Exited with exit code 2": (2, None, "0"),
        b"Received 15 death signal, shutting down workers": (None, 15, None),
        b"Received Signals.SIGHUP death signal, shutting down workers": (None, 1, None),
        b"./run.sh: line 41: 20714 Killed                  torchrun x.py": (None, 9, None),
        b"Terminated": (None, 15, None),
        b"[rank: 1] Child process with PID 9 terminated with code -15. Forcefully terminating all": (-15, 15, "1"),
    }
    for line, wanted in told.items():
        assert [(one.code, one.signal, one.rank) for one in read(line + b"\n").ends] == [wanted], line
    assert read(b"Process 7 exits with return code = 0\nsignal lost\n").ends == ()
    assert len(read(b"Killed\n" * 30).ends) == 8
    summary = (
        b"  rank      : 9 (local_rank: 1)\nRoot Cause (first observed failure):\n  rank      : 2 (local_rank: 2)\n"
    )
    assert read(summary + b"  rank      : 5 (local_rank: 5)\n").root_rank == "2"


def test_a_log_of_ever_new_shapes_needs_no_more_memory() -> None:
    scanner = LogScanner()
    scanner.feed(b"".join(b"word %s\n" % (b"ab" * index) for index in range(MAX_SHAPES // 8)) * 2)
    for index in range(9):
        scanner.feed(b"".join(b"%s %s\n" % (b"q" * (index + 1), b"ab" * n) for n in range(MAX_SHAPES // 8)))
    assert len(scanner._shapes) <= MAX_SHAPES
    assert read(b"\x00\x00cut\nxtraining complete\n").cut_head is True
