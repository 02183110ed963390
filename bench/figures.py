"""The figures of a benchmark: values by cell and round, their ratios, and targets.

A *cell* is one thing that is measured once a round, such as a policy beside four threads; a
*figure* is a number that each round of a cell yields. Since the machine drifts, two cells are
compared by the median of their ratios round by round. Files of results have the form of those of
`headway bench`, with an experiment for each figure. This module does not know how values arise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from headway.output.claim import Statement
from headway.output.drawing import number
from headway.output.results import Result, Results
from headway.report.columns import aligned
from headway_lab.results_file import KeptExperiment

__all__ = ["Figures", "number", "print_targets", "ratio", "table", "target"]

Cell = TypeVar("Cell", bound=tuple[Any, ...])


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

    def cells(self) -> list[Cell]:
        """The cells that have figures, in the order of their first round."""
        return list(self._values)

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
        self, name: str, parameters: Callable[[Cell], dict[str, Any]], targets: Sequence[Statement]
    ) -> list[KeptExperiment]:
        """The experiments, one per figure; the first has the targets."""
        names = dict.fromkeys(figure for figures in self._values.values() for figure in figures)
        return [
            experiment(
                f"{name} {figure}",
                unit_of(figure),
                [
                    (parameters(cell), figures[figure])
                    for cell, figures in self._values.items()
                    if figure in figures
                ],
                () if index else targets,
            )
            for index, figure in enumerate(names)
        ]


def experiment(
    name: str,
    unit: str,
    rows: Sequence[tuple[dict[str, Any], Sequence[float]]],
    targets: Sequence[Statement] = (),
) -> KeptExperiment:
    """Rows of parameters and values in the form of a file of results. Values that are not numbers
    were not measured."""
    results = Results(name, unit, [], {})
    for parameters, values in rows:
        result = Result(parameters)
        result.values = [value for value in values if math.isfinite(value)]
        results.rows.append(result)
    return KeptExperiment(results, None, [each.checked() for each in targets])


def unit_of(figure: str) -> str:
    """The unit, which the end of the figure's name gives."""
    if figure.endswith("_per_s"):
        return figure.removesuffix("_per_s").replace("_", " ") + "/s"
    if figure.endswith("_bytes"):
        return "bytes"
    return "s" if figure.endswith("_s") else ""


def target(
    text: str, value: float, bound: float, *, at_most: bool = False, unit: str = ""
) -> Statement:
    """A target that Headway sets itself, a lower or an upper bound, and the measured value."""
    low, high = (-math.inf, bound) if at_most else (bound, math.inf)
    return Statement(f"{text} ({unit})" if unit else text, value, low, high)


def print_targets(targets: Sequence[Statement]) -> None:
    for each in targets:
        met = "met    " if each.agrees else "NOT MET"
        print(f"{met}  {each.text}: {number(each.value)}, {each.allowed}")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], names: int = 2) -> str:
    """Aligned columns: the first `names` are left-aligned, the figures are right-aligned."""
    return "\n".join(aligned([headings, *rows], names))
