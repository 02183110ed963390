"""Tables and charts before anybody has drawn them, and the two ways to lay results out.

They know nothing of terminals, HTML or SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headway.bench.results import Result, Results


class Cell(NamedTuple):
    """What a table has in one place. `value` is a median, from `low` to `high` by its confidence
    interval; `published` what others had there; `text` stands in for numbers (a name, a reason)."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    published: float | None = None
    unstable: bool = False
    text: str = ""


class Table(NamedTuple):
    """`names` leading columns are text. `note` is a line below it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    names: int = 1
    note: str = ""


class Series(NamedTuple):
    """Points (x, median, low, high) of one line, and those that were published (x, y)."""

    name: str
    points: Sequence[tuple[float, float, float, float]]
    published: Sequence[tuple[float, float]] = ()


class Chart(NamedTuple):
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    # Lines that mark the multiples of an interval, on the x axis.
    multiples_of: float | None = None


def cell_of(result: Result | None, figure: str = "") -> Cell:
    """A result's value, or another figure of it; that it has none, the reason for which stands
    elsewhere."""
    if result is None:
        return Cell(text="")
    if not result.values:
        why = "left out" if result.left_out else "failed" if result.failures else "-"
        return Cell(text=why, published=None if figure else result.published)
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
