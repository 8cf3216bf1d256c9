"""Where the lines, ticks and stretches of a chart go."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_supervise.web.charts import MAX_POINTS, Chart, Mark, Window, lane, line_chart, place_marks, time_ticks

WINDOW = Window(1000.0, 1100.0)
TIMES = [1000.0 + n for n in range(0, 101, 5)]


def chart(values: list[float | None], *, from_zero: bool = False) -> Chart:
    drawn = line_chart(TIMES, values, WINDOW, what="loss", from_zero=from_zero)
    assert drawn is not None
    return drawn


def test_a_line_runs_from_the_left_edge_to_the_right_and_higher_is_up() -> None:
    drawn = chart([float(n) for n in range(21)])
    assert len(drawn.paths) == 1
    points = [tuple(map(float, pair.split(","))) for pair in drawn.paths[0].removeprefix("M").split(" L")]
    assert points[0][0] == drawn.left and points[-1][0] == drawn.width - 8
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)


def test_a_missing_value_breaks_the_line_and_a_lonely_point_becomes_a_dot() -> None:
    values: list[float | None] = [1.0] * 21
    values[5] = values[7] = None
    drawn = chart(values)
    assert len(drawn.paths) == 2 and len(drawn.dots) == 1


def test_a_silence_breaks_the_line_too() -> None:
    drawn = line_chart([1000, 1001, 1002, 1060, 1061], [1.0, 2.0, 3.0, 4.0, 5.0], WINDOW, what="loss")
    assert drawn is not None and len(drawn.paths) == 2


def test_nothing_known_is_no_chart() -> None:
    assert line_chart(TIMES, [None] * 21, WINDOW, what="loss") is None
    assert line_chart(TIMES, [float("nan")] * 21, WINDOW, what="loss") is None
    assert line_chart([], [], WINDOW, what="loss") is None


def test_a_constant_gets_room_and_the_scale_holds_both_ends() -> None:
    drawn = chart([2.5] * 21)
    assert len({tick.text for tick in drawn.y_ticks}) == len(drawn.y_ticks) >= 3
    assert chart([40.0, *[50.0] * 20], from_zero=True).y_ticks[0].text == "0"


def test_a_spike_survives_thinning() -> None:
    times = [1000.0 + n / 100 for n in range(10000)]
    values: list[float | None] = [1.0] * 10000
    values[7777] = 9.0
    drawn = line_chart(times, values, WINDOW, what="loss")
    assert drawn is not None
    kept = json.loads(drawn.points)["data"]
    assert len(kept[0]) <= MAX_POINTS + 2 and max(kept[1]) == 9.0


@given(st.lists(st.one_of(st.none(), st.floats(-1e12, 1e12)), min_size=1, max_size=21))
def test_every_point_lies_inside_the_picture(values: list[float | None]) -> None:
    drawn = line_chart(TIMES[: len(values)], values, WINDOW, what="loss")
    if drawn is None:
        assert all(value is None for value in values)
        return
    for path in drawn.paths:
        for pair in path.removeprefix("M").split(" L"):
            x, y = map(float, pair.split(","))
            assert drawn.left <= x <= drawn.width and 0 <= y <= drawn.height


def test_labels_never_cover_each_other_but_every_line_is_drawn() -> None:
    marks = [Mark(1050.0 + n / 10, f"attempt {n}", "busy") for n in range(6)]
    placed = place_marks(marks, WINDOW, 48.0, 584.0)
    assert len(placed) == 6
    shown = [mark for mark in placed if mark.text]
    assert len({mark.y for mark in shown}) == len(shown) == 3


def test_a_mark_outside_the_window_is_not_drawn_and_one_at_the_edge_turns_left() -> None:
    placed = place_marks([Mark(900, "a", "ok"), Mark(1099, "b", "bad")], WINDOW, 48.0, 584.0)
    assert [(mark.text, mark.flip) for mark in placed] == [("b", True)]


@pytest.mark.parametrize("span_s", [60, 600, 1800, 86400])
def test_clock_times_are_round_and_few(span_s: float) -> None:
    ticks = time_ticks(Window(1_800_000_007.0, 1_800_000_007.0 + span_s), 48.0, 584.0)
    assert 2 <= len(ticks) <= 8
    assert all(48.0 <= tick.at <= 632.0 for tick in ticks)


def test_equal_neighbours_of_a_lane_join_and_a_silence_stays_empty() -> None:
    times = [1000.0, 1005.0, 1010.0, 1015.0, 1070.0, 1075.0]
    drawn = lane("GPU 0", times, ["idle", "working", "working", "working", "spinning", None], WINDOW, width=100.0)
    assert [(part.kind, part.x, part.width) for part in drawn.stretches] == [
        ("idle", 0.0, 5.0),
        ("working", 5.0, 40.0),  # the last reading holds for six usual distances, then nobody knows
        ("spinning", 70.0, 5.0),
        ("unknown", 75.0, 25.0),
    ]
    assert drawn.summary.startswith("GPU 0: working 40 s")
