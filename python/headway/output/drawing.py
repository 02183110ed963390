"""Tables as text for a terminal. Pure: tables go in, lines come out.

A figure is a median, how far its confidence interval goes (in per cent of it, to the farther
side), and what was published, each aligned with those above and below. A table that is too wide
does without the confidence intervals if it fits then; otherwise it is broken between columns, with
the names of its rows before each part.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headway.output.results import Results
from headway.output.statistics import CONFIDENCE, UNSTABLE_WIDTH, coverage
from headway.output.table import Cell, Table
from headway.report import columns
from headway.report.terminal import Style

INDENT = "  "
GAP = "  "
# Headings of narrow columns are broken between words, but not below this width.
MIN_HEADING = 10
UNSTABLE = "!"

PLAIN = Style()


def number(value: float) -> str:
    """Three significant digits, and no more than a reader needs; - for what is not known."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = min(6, max(0, 2 - math.floor(math.log10(abs(value)))))
    return f"{value:.{digits}f}"


def draw(table: Table, style: Style = PLAIN, marks: Mapping[str, str] | None = None) -> str:
    """Aligned columns: the first `names` to the left, figures to the right. `marks` replace
    texts that are printed elsewhere."""
    columns_with = _columns(table, style, marks or {}, True)
    parts, without = _parts(*columns_with, style.width), ""
    if len(parts) > 1:
        fewer = _parts(*_columns(table, style, marks or {}, False), style.width)
        if len(fewer) == 1:
            needed = sum(len(GAP) + column.width for each in columns_with for column in each)
            parts, without = fewer, f"Confidence intervals would need {needed} columns here."
    lines = [*wrap(table.title, style)]
    for part in parts:
        lines += _side_by_side(part)
    notes = [each for each in (table.note, without) if each]
    return "\n".join([*lines, *(line for note in notes for line in wrap(note, style, INDENT))])


def legend(
    tables: Sequence[Table],
    drawn: Iterable[str],
    style: Style = PLAIN,
    *,
    fewest: int = 0,
) -> list[str]:
    """The meaning of the signs in these tables, as far as they were drawn. `fewest` is the smallest
    number of values that a row has."""
    cells = [cell for table in tables for line in table.rows for cell in line]
    signs = []
    if any(_plus_minus(style) in text for text in drawn):
        sign = f"{_plus_minus(style)} to the farther end of the"
        signs.append(f"{sign} {100 * CONFIDENCE:g} % confidence interval")
        if fewest > 1 and (sure := coverage(fewest)) < CONFIDENCE:
            signs[-1] += f" (of {fewest} values {100 * sure:.3g} %)"
    if any(cell.unstable for cell in cells):
        share = f"{100 * UNSTABLE_WIDTH:g} %"
        signs.append(
            f"{UNSTABLE} unstable: one value, or an interval wider than {share} of the median"
        )
    if any(cell.published is not None for cell in cells):
        signs.append("in parentheses: published")
    return wrap("; ".join(signs), style)


def mark_reasons(results: Results) -> dict[str, str]:
    """For each reason why rows have no values, the mark that stands for it in tables."""
    reasons = dict.fromkeys(result.reason for result in results if result.reason)
    return {reason: f"[{place}]" for place, reason in enumerate(reasons, start=1)}


def wrap(text: str, style: Style, first: str = "", rest: str | None = None) -> list[str]:
    """In the terminal's columns; nothing of no text."""
    return textwrap.wrap(
        text,
        style.width,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
    )


def _columns(
    table: Table, style: Style, marks: Mapping[str, str], intervals: bool
) -> tuple[list[_Column], list[_Column]]:
    """Those of names, and those of figures."""
    cells = list(zip(*table.rows, strict=True)) or [()] * len(table.headings)
    headed = list(zip(table.headings, cells, strict=True))
    return (
        [_names(*each) for each in headed[: table.names]],
        [_figures(*each, style, marks, intervals) for each in headed[table.names :]],
    )


class _Column(NamedTuple):
    """All lines are `width` wide."""

    heading: list[str]
    body: list[str]
    width: int


def _names(heading: str, cells: Sequence[Cell]) -> _Column:
    texts = [columns.name(cell.text) for cell in cells]
    width = max(map(columns.width, (heading, *texts)))
    return _Column(
        [columns.pad(heading, width)], [columns.pad(text, width) for text in texts], width
    )


def _figures(
    heading: str,
    cells: Sequence[Cell],
    style: Style,
    marks: Mapping[str, str],
    intervals: bool,
) -> _Column:
    parts = [_cell_parts(cell, style, marks, intervals) for cell in cells]
    aligned = [each for each in parts if len(each) > 1]
    widths = [max(map(columns.width, each)) for each in zip(*aligned, strict=True)]
    body = [
        " ".join(_right(part, width) for part, width in zip(each, widths, strict=True) if width)
        if len(each) > 1
        else each[0]
        for each in parts
    ]
    least = max(map(columns.width, (" " * MIN_HEADING, *heading.split(), *body)))
    lines = textwrap.wrap(heading, least, break_long_words=False, break_on_hyphens=False)
    width = max(map(columns.width, (*lines, *body)))
    return _Column(
        [_right(line, width) for line in lines], [_right(each, width) for each in body], width
    )


def _cell_parts(
    cell: Cell, style: Style, marks: Mapping[str, str], intervals: bool
) -> tuple[str, ...]:
    """The median, how far its interval goes, and what was published; a text is alone, and has the
    whole column."""
    text = marks.get(cell.text) or columns.name(cell.text)
    published = "" if cell.published is None else f"({number(cell.published)})"
    if cell.value is not None:
        spread = (_spread(cell, style) if intervals else "") + (UNSTABLE if cell.unstable else "")
        return number(cell.value), spread, published
    return (text, "", published) if published else (text,)


def _spread(cell: Cell, style: Style) -> str:
    if not cell.value or cell.low is None or cell.high is None:
        return ""
    farther = max(cell.high - cell.value, cell.value - cell.low)
    return f"{_plus_minus(style)}{farther / abs(cell.value):.0%}" if farther else ""


def _plus_minus(style: Style) -> str:
    return "±" if style.blocks else "+-"


def _parts(names: Sequence[_Column], figures: Sequence[_Column], width: int) -> list[list[_Column]]:
    """As few parts as fit into `width`; a column that fits nowhere has one of its own."""
    used = sum(len(GAP) + name.width for name in names)
    parts: list[list[_Column]] = [[*names]]
    room = width - used
    for column in figures:
        room -= len(GAP) + column.width
        if room < 0 and len(parts[-1]) > len(names):
            parts.append([*names])
            room = width - used - len(GAP) - column.width
        parts[-1].append(column)
    return parts


def _side_by_side(part: Sequence[_Column]) -> list[str]:
    """The last lines of all headings are beside each other."""
    height = max(len(column.heading) for column in part)
    stacks = [
        [" " * column.width] * (height - len(column.heading)) + column.heading + column.body
        for column in part
    ]
    return [(INDENT + GAP.join(line)).rstrip() for line in zip(*stacks, strict=True)]


def _right(text: str, width: int) -> str:
    return " " * (width - columns.width(text)) + text
