"""A log is hostile: what is left of it on a page is text and a few class names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_supervise.web.sgr import line_html, lines_html, plain

# What our style sheet knows; a log may put no other class on the page.
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
CLASSES = frozenset({"b", "dim", "i", "u", *(f"c-{name}" for name in COLOURS)})

TAG = re.compile(r'<(?!/span>|span class="([a-z -]+)">)')


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("plain", "plain"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a & b \"c\" 'd'", "a &amp; b &#34;c&#34; &#39;d&#39;"),
        ("\x1b[31mred\x1b[0m off", '<span class="c-red">red</span> off'),
        ("\x1b[1;92mok\x1b[22m\x1b[39m.", '<span class="b c-green">ok</span>.'),
        ("\x1b[38;5;1mred\x1b[38;5;200m kept", '<span class="c-red">red</span><span class="c-red"> kept</span>'),
        ("\x1b[38;2;1;31;1mx", "x"),
        ("\x1b[41;30mdark on red", '<span class="c-black">dark on red</span>'),
        ("\x1b[8mhidden is shown", "hidden is shown"),
        ("\x1b[31 mnot sgr", "not sgr"),
        ("\x1b[?25l\x1b[2J\x1b[10;10Hmoved", "moved"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;ZXZpbA==\x07clip", "clip"),
        ("\x1bP1$r0m\x1b\\dcs", "dcs"),
        ("\x9b31mc1 csi", '<span class="c-red">c1 csi</span>'),
        ("\x9d0;title\x9cc1 osc", "c1 osc"),
        ("a\x00\x08\x7f\x85b", "ab"),
        ("gnp.\u202eexe\u2066x\u2069", "gnp.exex"),
        ("10%|#   |\r100%|####|", "100%|####|"),
        ("done\r", "done"),
        ("tab\tkept", "tab\tkept"),
        ("\x1b[<script>m", "cript&gt;m"),  # a terminal, too, takes "<s" for a command with a private parameter
        ("\x1b[3\x1b[31m1mx", '<span class="c-red">1mx</span>'),
    ],
)
def test_only_colour_and_weight_survive(raw: str, want: str) -> None:
    assert str(line_html(raw)) == want


def test_an_unterminated_command_swallows_no_more_than_its_line() -> None:
    assert [str(line) for line in lines_html("\x1b]0;never ends\nnext line\n")] == ["", "next line"]


def test_a_look_does_not_leak_into_the_next_line() -> None:
    assert [str(line) for line in lines_html("\x1b[31mred\nnot red\n")] == ['<span class="c-red">red</span>', "not red"]


def test_windows_ends_and_empty_logs_make_no_extra_line() -> None:
    assert lines_html("") == []
    assert [str(line) for line in lines_html("a\r\nb\r\n")] == ["a", "b"]


@given(
    st.text(
        alphabet=st.sampled_from("\x1b\x9b\x9d\x90\x9c[]P;:0123m38ABz<>&\"'/\\ \r\x07\u202e\u200bscript="), max_size=60
    )
)
def test_nothing_but_our_own_spans_ever_comes_out(raw: str) -> None:
    out = str(line_html(raw))
    assert not TAG.search(out)
    for classes in re.findall(r'class="([^"]*)"', out):
        assert set(classes.split()) <= CLASSES
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out)
    assert out.count("<span") == out.count("</span>")


def test_the_plain_text_is_what_the_page_shows() -> None:
    assert plain("\x1b[31mKeyError: 'a'\x1b[0m") == "KeyError: 'a'"
