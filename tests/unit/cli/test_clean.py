"""Log text is hostile: what reaches the terminal is text and plain colours."""

from __future__ import annotations

import pytest

from dflash_supervise.cli import clean


@pytest.mark.parametrize(
    ("hostile", "safe"),
    [
        ("plain \t text", "plain \t text"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;cm0gLXJm\x1b\\after", "after"),
        ("\x1bP+q544e\x1b\\after", "after"),
        ("\x9d0;title\x9cafter", "after"),
        ("\x1b]8;;http://evil.example\x07click\x1b]8;;\x07", "click"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x9b2Jgone", "gone"),
        ("\x1bcreset", "reset"),
        ("\x1b(0lqk\x1b(B", "lqk"),
        ("bell\x07 back\x08\x08\x08space", "bell backspace"),
        ("password: \x1b[8mhidden\x1b[0m", "password: hidden"),
        ("a\u202eb\u2066c\u200fd", "abcd"),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("\x1b[31", ""),
        ("\x00\x01\x1b[31m\x00x", "x"),
        ("10 %\r20 %\r30 %", "30 %"),
        ("windows\r", "windows"),
    ],
)
def test_control_sequences_are_removed(hostile: str, safe: str) -> None:
    assert clean.line(hostile) == safe


def test_plain_colours_stay_on_a_terminal_and_end_with_the_line() -> None:
    assert clean.line("\x1b[1;31mred\x1b[0m x", colour=True) == "\x1b[1;31mred\x1b[0m x\x1b[0m"


@pytest.mark.parametrize("sequence", ["\x1b[8m", "\x1b[5m", "\x1b[41m", "\x1b[38;5;1m", "\x1b[31;8m", "\x1b[?25l"])
def test_concealed_text_backgrounds_and_blinking_go_even_on_a_terminal(sequence: str) -> None:
    assert clean.line(f"{sequence}x", colour=True) == "x"


def test_nothing_that_a_terminal_obeys_survives_in_any_combination() -> None:
    pieces = [
        "\x1b",
        "[",
        "]",
        "P",
        "0",
        ";",
        "31",
        "m",
        "\x07",
        "\x9b",
        "\x9d",
        "\x9c",
        "\\",
        "\x00",
        "\x01",
        "\u202e",
    ]
    state = 12345
    for _ in range(3000):
        text = ""
        for _ in range(12):
            state = (state * 1103515245 + 12345) % 2**31
            text += pieces[state >> 16 & 15]
        kept = clean.line(text, colour=True)
        for allowed in ("\x1b[0m", "\x1b[31m", "\x1b[m", "\x1b[0;31m", "\x1b[31;0m", "\x1b[;m"):
            kept = kept.replace(allowed, "")
        assert not [c for c in clean.line(text) if ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e"], repr(text)
        assert "\x9b" not in kept and "\x9d" not in kept and "\x07" not in kept, repr(text)


def test_an_unfinished_title_sequence_does_not_swallow_the_next_line() -> None:
    lines = clean.Lines()
    whole = lines.feed("\x1b]0;never ended\nTraceback\n")
    assert [clean.line(text) for text in whole] == ["", "Traceback"]


def test_lines_holds_back_what_is_unfinished_and_only_the_newest_redraw() -> None:
    lines = clean.Lines()
    assert lines.feed("one\ntw") == ["one"]
    assert lines.feed("o\n10%\r20%\r30%") == ["two"]
    assert lines.partial == "30%"
    assert [clean.line(text) for text in lines.feed("\r\n")] == ["30%"]


def test_documents_are_cleaned_in_every_corner() -> None:
    value = {"a\x1b[2J": ["x\x07", {"b": "l1\nl2\x1b]0;t\x07"}], "n": 1, "none": None}
    assert clean.document(value) == {"a": ["x", {"b": "l1\nl2"}], "n": 1, "none": None}
