"""Tables and charts before they are drawn, and the listing of results as a table.

This module does not know terminals, HTML or SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headway.output.results import Result, Results
from headway.report import units


class Cell(NamedTuple):
    """One cell of a table. `value` is a median, with the confidence interval from `low` to `high`.
    `published` is the published value. `text` replaces numbers (a name, a reason)."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    published: float | None = None
    unstable: bool = False
    text: str = ""


class Table(NamedTuple):
    """The first `names` columns are text. `note` is a line below the table."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    names: int = 1
    note: str = ""


class Series(NamedTuple):
    """Points (x, median, low, high) of one line, and its published points (x, y)."""

    name: str
    points: Sequence[tuple[float, float, float, float]]
    published: Sequence[tuple[float, float]] = ()


class Chart(NamedTuple):
    """A chart. If a label ends in "(s)", its numbers are written as times: 5 ms, 10 µs."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    # Lines that mark the multiples of an interval, on the x axis.
    multiples_of: float | None = None


def cell_of(result: Result | None, figure: str = "") -> Cell:
    """The value of a result, or another figure of it; its reason if it has no value."""
    if result is None:
        return Cell(text="")
    if not result.values:
        return Cell(text=result.reason, published=None if figure else result.published)
    found = result.interval(figure)
    if found is None:
        return Cell(text="-")
    if figure:
        return Cell(found.median, found.low, found.high)
    return Cell(found.median, found.low, found.high, result.published, result.unstable)


def text_of(parameter: str, value: object) -> str:
    """A parameter's value as a name of rows and lines."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        is_time = parameter.endswith(("_s", "interval"))
        return units.seconds(value) if is_time else f"{value:g}"
    return str(value)


def listing(
    results: Results,
    title: str,
    names: Sequence[str],
    figures: Mapping[str, str],
    *,
    note: str = "",
) -> Table:
    """One line for each row: the parameters that are its name, then `figures` under their headings.
    The figure "" is the value itself. A row without values has its reason in the first column."""
    rows = []
    for result in results:
        cells = [Cell(text=text_of(name, result.parameters.get(name, "-"))) for name in names]
        if result.values:
            cells += [cell_of(result, figure) for figure in figures.values()]
        else:
            cells += [cell_of(result), *[Cell(text="")] * (len(figures) - 1)]
        rows.append(cells)
    headings = [*(name.replace("_", " ") for name in names), *figures]
    return Table(title, headings, rows, len(names), note)
