"""Statements and reasons as the terminal has them."""

from __future__ import annotations

from made_rows import results, row

from headway.output.claim import Statement
from headway.output.drawing import mark_reasons
from headway.report.terminal import Style
from headway_lab.statements import MOST_NAMED, draw_reasons, draw_statement

NARROW, WIDE = Style(60), Style(110)


def test_a_reason_stands_before_the_rows_that_have_it() -> None:
    made = results(
        row([1.0], threads=1),
        row([], None, "no second core", threads=2),
        row([], None, "no second core", threads=4),
    )
    assert draw_reasons(made, mark_reasons(made)) == [
        "[1] not measured: no second core",
        "    threads 2",
        "    threads 4",
    ]


def test_of_many_rows_with_one_reason_some_are_named() -> None:
    made = results(*(row([], None, "not here", threads=count) for count in range(1, 9)))
    lines = draw_reasons(made, mark_reasons(made))
    assert len(lines) == 1 + MOST_NAMED + 1
    assert lines[-1].strip() == "and 5 more"


def test_what_rows_with_values_have_lost_is_told() -> None:
    once = row([1.0, 1.1], threads=2)
    once.failures = ["it ended\x1b[2J"]
    made = results(row([1.0, 1.1, 1.2], threads=1), once)
    assert draw_reasons(made, mark_reasons(made)) == [
        "1 measurement of threads 2 failed: it ended\\x1b[2J"
    ]


def test_reasons_move_no_cursor() -> None:
    made = results(row([], None, "\x1b[2J" + "x" * 10_000, threads=1))
    first, _ = draw_reasons(made, mark_reasons(made))
    assert first.startswith("[1] not measured: \\x1b[2Jxxx")
    assert len(first) < 500


def test_a_statement_has_its_verdict_its_number_and_what_is_allowed() -> None:
    assert draw_statement(Statement("two as long as one: ratio", 1.02, 0.9, 1.15), WIDE) == [
        "agrees   two as long as one: ratio: 1.02, from 0.9 to 1.15"
    ]


def test_a_statement_that_differs_says_why_and_is_wrapped() -> None:
    words = "eight threads take many times as long as one at a thousandth of a millisecond"
    statement = Statement(words, 3.2, 8.0, why="this kernel switches faster")
    lines = draw_statement(statement, NARROW)
    assert lines[0].startswith("differs  eight threads")
    assert all(line.startswith(" " * 9) for line in lines[1:])
    assert max(map(len, lines)) <= NARROW.width
    assert " ".join(" ".join(lines).split()) == (
        f"differs {words}: 3.20, at least 8 (this kernel switches faster)"
    )


def test_the_reason_for_a_difference_is_not_given_where_there_is_none() -> None:
    (line,) = draw_statement(Statement("a ratio", 9.0, 8.0, why="something else"), WIDE)
    assert line == "agrees   a ratio: 9.00, at least 8"
