"""The ways to arrange results: `pivot` makes a table, `series_of` and `series_by` the lines of a
chart."""

from __future__ import annotations

from collections.abc import Callable

from headway.output.results import Results
from headway.output.table import Cell, Series, Table, cell_of, text_of


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


def label_of(parameter: str, value: object) -> str:
    """The same with the parameter's name, for places that do not show it: 1 thread, 4 threads."""
    text = text_of(parameter, value)
    if isinstance(value, bool):
        return f"{parameter.replace('_', ' ')}: {text}"
    if isinstance(value, int):
        noun = parameter.replace("_", " ")
        return f"{text} {noun.removesuffix('s') if value == 1 else noun}"
    return text


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
