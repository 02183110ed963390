"""Tables and charts before they are drawn, and the ways to arrange results in them.

`pivot` and `listing` make tables; `series_of` and `series_by` make the lines of a chart. This
module does not know terminals, HTML or SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def pivot(
    results: Results,
    title: str,
    down: str,
    across: str,
    *,
    down_text: Callable[[object], str] = str,
    across_text: Callable[[object], str] = str,
    figure: str = "",
    note: str = "",
) -> Table:
    """One parameter down, one across: `results` have one row for each pair."""
    downs = list(dict.fromkeys(each.parameters[down] for each in results))
    acrosses = list(dict.fromkeys(each.parameters[across] for each in results))
    rows = [
        [
            Cell(text=down_text(one)),
            *(cell_of(results.find(**{down: one, across: other}), figure) for other in acrosses),
        ]
        for one in downs
    ]
    return Table(title, [down.replace("_", " "), *map(across_text, acrosses)], rows, 1, note)


def text_of(parameter: str, value: object) -> str:
    """A parameter's value as a name of rows and lines."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        is_time = parameter.endswith(("_s", "interval"))
        return units.seconds(value) if is_time else f"{value:g}"
    return str(value)


def label_of(parameter: str, value: object) -> str:
    """The same with the parameter's name, for places that do not show it: 1 thread, 4 threads."""
    text = text_of(parameter, value)
    if isinstance(value, bool):
        return f"{parameter.replace('_', ' ')}: {text}"
    if isinstance(value, int):
        noun = parameter.replace("_", " ")
        return f"{text} {noun.removesuffix('s') if value == 1 else noun}"
    return text


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


def series_of(results: Results, name: str, x: str, *, figure: str = "", per: float = 1.0) -> Series:
    """A line through the rows, by their parameter `x`, without rows that have no values. `per` is a
    divisor, such as a baseline. Only the value itself has published figures."""
    points, published = [], []
    for result in sorted(
        (each for each in results if x in each.parameters), key=lambda each: each.parameters[x]
    ):
        place = float(result.parameters[x])
        found = result.interval(figure)
        if found is not None:
            points.append((place, found.median / per, found.low / per, found.high / per))
        if result.published is not None and not figure:
            published.append((place, result.published / per))
    return Series(name, points, published)


def series_by(
    results: Results,
    by: str,
    x: str,
    *,
    figure: str = "",
    name: Callable[[object], str] | None = None,
) -> list[Series]:
    """A line for each value of the parameter `by`, without lines that have no point."""
    lines = [
        series_of(
            results.where(**{by: value}),
            name(value) if name else label_of(by, value),
            x,
            figure=figure,
        )
        for value in results.distinct(by)
    ]
    return [line for line in lines if line.points]
