"""Colour, plain signs and where things are written."""

from __future__ import annotations

import io
import sys

import pytest

from dflash_supervise.cli import marks, say, table, words


class Tty(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        data = self.buffer.getvalue()  # type: ignore[attr-defined]  # the buffer is a BytesIO
        return str(data.decode(self.encoding))


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_colour_is_for_terminals_only() -> None:
    assert say.style_of(Tty()).colour
    assert not say.style_of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")).colour


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert not say.style_of(Tty()).colour


def test_a_state_is_told_without_colour() -> None:
    signs = {name: marks.verdict_sign(name, say.PLAIN) for name in ("running", "crash", "hang", "host_unreachable")}
    assert len(set(signs.values())) == 4


def test_a_terminal_that_has_no_unicode_gets_plain_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Tty("ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    say.data("\u2716 crash \u00b7 a \u2192 b \u4e2d")
    assert stream.text == "x crash . a -> b ?\n"


def test_an_error_is_message_then_fix_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say.error("It broke.", "Mend it.")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: It broke.\nfix:   Mend it.\n")


def test_a_status_line_is_redrawn_on_a_terminal_and_silent_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say.StatusLine().show("10 %")
    assert capsys.readouterr().err == ""
    stream = Tty()
    monkeypatch.setattr(sys, "stderr", stream)
    line = say.StatusLine()
    line.show("10 %")
    line.log("done")
    assert stream.text == "\r\x1b[2K10 %\r\x1b[2Kdone\n"


def test_tables_are_as_wide_as_their_content() -> None:
    lines = table.rows(("A", "LONG"), [["xx", "1"], ["y", "22"]], style=say.PLAIN, right=frozenset({1}))
    assert lines == ["A   LONG", "xx     1", "y     22"]
    assert table.rows((), [], style=say.PLAIN) == []


@pytest.mark.parametrize(
    ("classes", "strip"),
    [
        ([], "-"),
        (["working", "starved", "spinning", "idle", "off", "new"], "\u2588\u2585\u2592\u2581\u00b7?"),
        (["idle"] * 10, "\u2581" * 8 + "+2"),
        ([None], "?"),
    ],
)
def test_a_gpu_has_one_cell_and_the_unknown_is_not_idle(classes: list[str | None], strip: str) -> None:
    assert marks.gpu_strip([{"class": name} for name in classes]) == strip


def test_a_cut_is_visible() -> None:
    assert words.cut("abcdef", 4) == "abc~"
    assert words.cut("abcd", 4) == "abcd"
