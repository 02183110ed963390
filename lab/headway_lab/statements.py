"""Statements and reasons as text for a terminal, below the tables of an experiment."""

from __future__ import annotations

from collections.abc import Mapping

from headway.output.claim import Statement
from headway.output.drawing import INDENT, PLAIN, number, wrap
from headway.output.results import Results, describe
from headway.report import columns, units
from headway.report.terminal import Style

# Of the rows that have the same reason, as many are named.
MOST_NAMED = 3
MAX_REASON = 400  # columns; the page has all of it


def draw_statement(statement: Statement, style: Style = PLAIN) -> list[str]:
    """The verdict, and beside it the sentence with its number; why, where they differ."""
    verdict = "agrees" if statement.agrees else "differs"
    text = f"{statement.text}: {number(statement.value)}, {statement.allowed}"
    if statement.why and not statement.agrees:
        text += f" ({statement.why})"
    first, *rest = wrap(f"{verdict:<7}  {text}", style, rest=" " * 9)
    if not statement.agrees:
        first = first.replace(verdict, style.marked(verdict), 1)
    return [first, *rest]


def draw_reasons(results: Results, marks: Mapping[str, str]) -> list[str]:
    """Each on a line of its own: it is what a program said. And what rows with values have lost."""
    lines = []
    for reason, mark in marks.items():
        rows = [describe(each.parameters) for each in results if each.reason == reason]
        more = len(rows) - MOST_NAMED
        lines.append(f"{mark} not measured: {columns.name(reason, MAX_REASON)}")
        lines += [INDENT * 2 + row for row in rows[:MOST_NAMED]]
        lines += [f"{INDENT * 2}and {more} more"] if more > 0 else []
    lines += [
        f"{units.number(len(each.failures), 'measurement')} of {describe(each.parameters)} failed: "
        + columns.name(each.failures[-1], MAX_REASON)
        for each in results
        if each.values and each.failures
    ]
    return lines
