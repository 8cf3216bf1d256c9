"""The scanner reads bytes as they come: any cut of the same log gives the same reading."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_supervise.core.facts import LogReading
from dflash_supervise.core.logscan import LINE_BYTES, LogScanner

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
]
PIECES = st.lists(st.sampled_from(PIECE), max_size=30)


@settings(max_examples=200, deadline=None)
@given(PIECES, st.lists(st.integers(0, 60_000), max_size=12))
def test_any_cut_of_the_same_bytes_gives_the_same_reading(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    assert read(data, *cuts) == read(data)


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
    assert len(scanner._ranks) <= 1024


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
