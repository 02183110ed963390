"""Tables as a terminal shows them."""

from __future__ import annotations

import pytest
from made_rows import results, row

from headway.output.drawing import draw, legend, mark_reasons, number
from headway.output.table import Cell, Table
from headway.report.terminal import Style

NARROW, WIDE = Style(60), Style(110)
ASCII = Style(110, blocks=False)


def table(*rows: list[Cell], headings: tuple[str, ...] = (), note: str = "") -> Table:
    named = headings or ("name", *(f"column {place}" for place in range(1, len(rows[0]))))
    return Table("a table", named, rows, 1, note)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00012345, "0.000123"),
        (0.5, "0.500"),
        (6.5249, "6.52"),
        (86.44, "86.4"),
        (1234.5, "1,234"),
        (30_000.0, "30,000"),
        (-2.0, "-2.00"),
        (float("nan"), "-"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_medians_intervals_and_publications_are_aligned_each() -> None:
    drawn = draw(
        table(
            [Cell(text="5 ms"), Cell(100.0, 99.0, 104.0, published=90.0)],
            [Cell(text="0.1 ms"), Cell(3_210.0, 2_000.0, 3_300.0, 3_200.0, unstable=True)],
            [Cell(text="alone"), Cell(30_000.0, 30_000.0, 30_000.0)],
        ),
        WIDE,
    )
    assert drawn.splitlines() == [
        "a table",
        "  name                column 1",
        "  5 ms       100   ±4%  (90.0)",
        "  0.1 ms   3,210 ±38%! (3,200)",
        "  alone   30,000",
    ]


def test_the_sign_of_an_interval_is_one_that_the_encoding_has() -> None:
    drawn = draw(table([Cell(text="5 ms"), Cell(100.0, 80.0, 104.0)]), ASCII)
    assert "100 +-20%" in drawn
    assert drawn.isascii()


def test_a_table_does_without_intervals_if_it_fits_then() -> None:
    cells = [Cell(100.0, 90.0, 110.0, unstable=True)] * 4
    made = table([Cell(text="a name"), *cells], [Cell(text="another"), *cells])
    needed = max(map(len, draw(made, WIDE).splitlines()))
    wide, narrow = draw(made, Style(needed)), Style(needed)
    assert "±10%!" in wide
    narrow.width = needed - 1
    drawn = draw(made, narrow)
    assert f"Confidence intervals would need {needed} columns here." in drawn
    assert "±" not in drawn
    assert drawn.count("100!") + drawn.count("100 !") == 8
    assert drawn.count("another") == 1


def test_a_table_that_is_still_too_wide_is_broken_between_columns() -> None:
    cells = [Cell(float(100 + place), 100.0, 120.0) for place in range(20)]
    drawn = draw(table([Cell(text="the row"), *cells]), NARROW)
    assert "±" in drawn
    lines = drawn.splitlines()
    assert max(map(len, lines)) <= NARROW.width
    assert [line.split()[:2] for line in lines].count(["the", "row"]) > 1
    for place in range(20):
        assert drawn.split().count(f"{100 + place}") == 1


def test_headings_of_narrow_columns_are_broken_between_words() -> None:
    made = table(
        [Cell(text="x"), Cell(1.0), Cell(2.0)], headings=("name", "waits for the GIL", "RSS")
    )
    assert draw(made, WIDE).splitlines() == [
        "a table",
        "        waits for",
        "  name    the GIL   RSS",
        "  x          1.00  2.00",
    ]


def test_a_text_has_the_whole_column_and_a_reason_its_mark() -> None:
    made = results(
        row([1.0], threads=1),
        row([], None, "no second core to run on, which this needs", threads=2),
        row([], None, "no second core to run on, which this needs", threads=4),
    )
    marks = mark_reasons(made)
    assert list(marks.values()) == ["[1]"]
    reason = made.rows[1].reason
    drawn = draw(
        table(
            [Cell(text="one"), Cell(1.0, 0.9, 1.1, 2.0)],
            [Cell(text="two"), Cell(text=reason)],
            [Cell(text="four"), Cell(text=reason, published=3.0)],
            [Cell(text="eight"), Cell(text="loses updates")],
        ),
        WIDE,
        marks,
    )
    assert reason not in drawn
    lines = [line.split() for line in drawn.splitlines()]
    assert lines[3] == ["two", "[1]"]
    assert lines[4] == ["four", "[1]", "(3.00)"]
    assert lines[5] == ["eight", "loses", "updates"]


def test_each_reason_has_a_mark_of_its_own() -> None:
    failed = row([], None, threads=4)
    failed.failures = ["it ended", "it ended again"]
    made = results(row([], None, "not here", threads=2), failed, row([1.0], threads=1))
    assert mark_reasons(made) == {"not here": "[1]", "it ended again": "[2]"}


def test_the_legend_has_the_signs_that_are_there() -> None:
    plain = table([Cell(text="x"), Cell(1.0, 1.0, 1.0)])
    assert legend([plain], [draw(plain)]) == []
    steady = table([Cell(text="x"), Cell(1.0, 0.95, 1.0)])
    assert "unstable" not in " ".join(legend([steady], [draw(steady)]))
    shaky = table([Cell(text="x"), Cell(1.0, 0.5, 1.0, 2.0, unstable=True)])
    said = " ".join(legend([shaky], [draw(shaky)], WIDE))
    assert "± to the farther end of the 95 %" in said
    assert "! unstable: one value, or an interval wider than 20 % of the median" in said
    assert "in parentheses: published" in said


@pytest.mark.parametrize(
    ("fewest", "said"),
    [(6, "confidence interval"), (3, "confidence interval (of 3 values 75 %)"), (5, "93.8 %)")],
)
def test_the_legend_does_not_claim_more_than_few_values_tell(fewest: int, said: str) -> None:
    made = table([Cell(text="x"), Cell(1.0, 0.95, 1.0)])
    assert legend([made], [draw(made)], WIDE, fewest=fewest)[-1].endswith(said)


def test_names_move_no_cursor() -> None:
    drawn = draw(table([Cell(text="\x1b[31mred\n"), Cell(text="\x1b]0;title\x07")]))
    assert "\x1b" not in drawn
    assert len(drawn.splitlines()) == 3


def test_a_table_without_rows_has_its_headings() -> None:
    drawn = draw(Table("none", ["name", "figure"], [], 1, "a note"), WIDE)
    assert drawn.splitlines() == ["none", "  name  figure", "  a note"]
