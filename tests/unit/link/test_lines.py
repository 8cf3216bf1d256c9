"""Bytes to lines, with noise before, between and after."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_supervise.link.lines import LINE_LIMIT_BYTES, LineSplitter, encode, parse


def test_only_what_follows_a_record_separator_is_ours() -> None:
    splitter = LineSplitter()
    data = b'Welcome\r\n\x1b[1mMOTD\x1e{"a":1}\nlast login\n{"t":"forged"}\n\x1e{"b":2}\nrest'
    assert splitter.feed(data) == [b'{"a":1}', b'{"b":2}']
    assert "Welcome" in splitter.noise and "MOTD" in splitter.noise and splitter.noise.endswith("rest")
    assert "\x1b" not in splitter.noise


@given(st.lists(st.integers(0, 40), max_size=8), st.data())
def test_lines_do_not_depend_on_how_the_bytes_were_cut(numbers: list[int], data: st.DataObject) -> None:
    stream = b"".join(b"noise \xff\n" * (number % 2) + b"\x1e%d\n" % number for number in numbers)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    splitter = LineSplitter()
    got: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += splitter.feed(stream[start:end])
    assert got == [b"%d" % number for number in numbers]


def test_a_line_without_an_end_costs_no_memory_and_the_next_one_is_read() -> None:
    splitter = LineSplitter()
    for _ in range(20):
        assert splitter.feed(b"x" * (LINE_LIMIT_BYTES // 2)) == []
    assert splitter.feed(b'end\n\x1e{"a":1}\n') == [b'{"a":1}']
    assert splitter.dropped == 1 and len(splitter.noise) < 5000


@pytest.mark.parametrize(("line", "want"), [(b'{"a":1}', {"a": 1}), (b"[1]", None), (b'{"a"', None), (b"\xff", None)])
def test_a_torn_line_is_no_message(line: bytes, want: object) -> None:
    assert parse(line) == want


def test_a_request_that_is_too_long_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="over the limit"):
        encode({"op": "x" * LINE_LIMIT_BYTES})
