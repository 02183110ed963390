"""The figures of a benchmark: values by cell and round, their ratios, tables and targets.

A *cell* is one thing that is measured once a round, such as a policy beside four threads; a
*figure* is a number that each round of a cell yields. Since the machine drifts, two cells are
compared by the median of their ratios round by round. This module does not know how values arise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from headway.experiments import histogram
from headway.experiments.output.drawing import number

__all__ = ["Figures", "Target", "number", "percentile", "ratio", "spread", "table"]

# A row whose rounds differ by more than this share of their median is marked as unstable.
UNSTABLE_SPREAD = 0.5

Cell = TypeVar("Cell", bound=tuple[Any, ...])


def percentile(values: Sequence[float], share: float) -> float:
    """The percentile of values in any order; NaN without values."""
    return histogram.percentile(sorted(values), share) if values else math.nan


def ratio(value: float, other: float) -> float:
    if other == 0:
        return math.nan if value == 0 else math.inf
    return value / other


class Figures(Generic[Cell]):
    """All values of a sitting. A cell is a NamedTuple whose fields are its parameters."""

    def __init__(self) -> None:
        self._values: dict[Cell, dict[str, list[float]]] = {}

    def record(self, cell: Cell, **figures: float) -> None:
        """One round's figures; their names carry their units."""
        for figure, value in figures.items():
            self._values.setdefault(cell, {}).setdefault(figure, []).append(value)

    def values(self, cell: Cell, figure: str) -> list[float]:
        """The figure's values by round; empty if the cell does not have the figure."""
        return self._values.get(cell, {}).get(figure, [])

    def median(self, cell: Cell, figure: str) -> float:
        values = self.values(cell, figure)
        return statistics.median(values) if values else math.nan

    def highest(self, cell: Cell, figure: str) -> float:
        return max(self.values(cell, figure), default=math.nan)

    def ratios(self, cell: Cell, other: Cell, figure: str) -> list[float]:
        """The ratios of two cells, by round."""
        pairs = zip(self.values(cell, figure), self.values(other, figure), strict=True)
        return [ratio(value, base) for value, base in pairs]

    def ratio(self, cell: Cell, other: Cell, figure: str) -> float:
        """The median of the ratios round by round; NaN if one of the two cells has no values."""
        if not self.values(cell, figure) or not self.values(other, figure):
            return math.nan
        return statistics.median(self.ratios(cell, other, figure))

    def experiments(
        self, name: str, parameters: Callable[[Cell], dict[str, Any]], targets: Sequence[Target]
    ) -> list[dict[str, Any]]:
        """The experiments of results schema 1, one per figure; the first has the targets."""
        names = dict.fromkeys(figure for figures in self._values.values() for figure in figures)
        experiments: list[dict[str, Any]] = [
            {
                "name": f"{name} {figure}",
                "unit": unit_of(figure),
                "rows": [
                    {"parameters": parameters(cell), **spread(figures[figure])}
                    for cell, figures in self._values.items()
                    if figure in figures
                ],
                "statements": [],
            }
            for figure in names
        ]
        experiments[0]["statements"] = [target.statement() for target in targets]
        return experiments


def unit_of(figure: str) -> str:
    """The unit, which the end of the figure's name gives."""
    if figure.endswith("_per_s"):
        return figure.removesuffix("_per_s").replace("_", " ") + "/s"
    if figure.endswith("_bytes"):
        return "bytes"
    return "s" if figure.endswith("_s") else ""


def spread(values: Sequence[float]) -> dict[str, Any]:
    """A row of the results: its median, its extremes, and the values by round; null for NaN."""
    known = [value for value in values if math.isfinite(value)]
    median = statistics.median(known) if known else None
    low, high = min(known, default=None), max(known, default=None)
    unstable = bool(median) and high - low > UNSTABLE_SPREAD * abs(median)  # type: ignore[operator,arg-type]
    return {
        "median": median,
        "low": low,
        "high": high,
        "values": [value if math.isfinite(value) else None for value in values],
        "published": None,
        "unstable": unstable,
    }


class Target(NamedTuple):
    """A target that Headway sets itself, a lower or an upper bound, and the measured value."""

    text: str
    value: float
    bound: float
    at_most: bool = False
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def __str__(self) -> str:
        return f"{'met    ' if self.met else 'NOT MET'}  {self.statement()['text']}"

    def statement(self) -> dict[str, Any]:
        """The target as a statement of the benchmark results, schema 1."""
        relation = "at most" if self.at_most else "at least"
        unit = f" {self.unit}" if self.unit else ""
        text = f"{self.text}: {number(self.value)}{unit}, {relation} {number(self.bound)}{unit}"
        value = self.value if math.isfinite(self.value) else None
        return {"text": text, "value": value, "agrees": self.met}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], names: int = 2) -> str:
    """Aligned columns: the first `names` are left-aligned, the figures are right-aligned."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    for row in (headings, *rows):
        cells = [
            cell.ljust(width) if index < names else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
