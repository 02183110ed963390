"""How results are arranged: rows and columns of a pivot, points of lines."""

from __future__ import annotations

import pytest
from made_rows import results, row

from headway.output.table import Cell
from headway_lab.arrangement import label_of, pivot, series_by, series_of

RATES = results(
    row([100.0] * 3, 90.0, switch_interval=0.005, threads=1),
    row([40.0] * 3, 50.0, switch_interval=0.005, threads=2),
    row([500.0] * 3, 450.0, switch_interval=0.001, threads=1),
    row([], None, "no second core", switch_interval=0.001, threads=2),
)


def test_a_pivot_has_one_parameter_down_and_one_across() -> None:
    table = pivot(RATES, "rates", "switch_interval", "threads")
    assert table.headings == ["switch interval", "1", "2"]
    assert [line[0].text for line in table.rows] == ["0.005", "0.001"]
    assert table.rows[0][1] == Cell(100.0, 100.0, 100.0, 90.0, False)
    assert table.rows[1][2] == Cell(text="no second core")


def test_a_line_goes_through_the_rows_in_the_order_of_its_axis() -> None:
    line = series_of(RATES.where(threads=1), "one", "switch_interval", per=100.0)
    assert line.points == [(0.001, 5.0, 5.0, 5.0), (0.005, 1.0, 1.0, 1.0)]
    assert line.published == [(0.001, 4.5), (0.005, 0.9)]


def test_a_row_without_values_has_no_point_but_what_was_published() -> None:
    line = series_of(
        results(row([], 7.0, "not here", threads=1), row([2.0], threads=2)), "all", "threads"
    )
    assert line.points == [(2.0, 2.0, 2.0, 2.0)]
    assert line.published == [(1.0, 7.0)]


def test_figures_have_nothing_published_beside_them() -> None:
    line = series_of(
        results(row([1.0], 9.0, figures={"p99_s": [0.25]}, threads=4)),
        "all",
        "threads",
        figure="p99_s",
    )
    assert line.points == [(4.0, 0.25, 0.25, 0.25)]
    assert line.published == []


def test_lines_are_named_by_what_tells_them_apart() -> None:
    lines = series_by(RATES, "threads", "switch_interval")
    assert [line.name for line in lines] == ["1 thread", "2 threads"]
    assert [len(line.points) for line in lines] == [2, 1]
    lines = series_by(RATES, "threads", "switch_interval", name=lambda count: f"{count} CPU-bound")
    assert lines[0].name == "1 CPU-bound"


def test_a_line_without_a_point_is_left_out() -> None:
    made = results(row([], None, "not here", mode="free-threaded", threads=1))
    assert series_by(made, "mode", "threads") == []


@pytest.mark.parametrize(
    ("parameter", "value", "text"),
    [
        ("cpu_threads", 1, "1 cpu thread"),
        ("cpu_threads", 0, "0 cpu threads"),
        ("switch_interval", 0.005, "5 ms"),
        ("pinned", False, "pinned: no"),
        ("mode", "processes", "processes"),
    ],
)
def test_parameters_that_nothing_else_names(parameter: str, value: object, text: str) -> None:
    assert label_of(parameter, value) == text
