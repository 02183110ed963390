"""The measured values of one experiment, row by row.

The same class holds them during the measurement and after a file was read (`results_file`), so a
file shows the same as the terminal. This module does not know how values arise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.output import statistics
from headway.output.statistics import Interval
from headway.recorder.records.histogram import Histogram

# The names and values that identify a row: text, numbers, booleans.
Parameters = dict[str, Any]


def describe(parameters: Parameters) -> str:
    """The parameters on one line."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in parameters.items())


class Result:
    """One row. `values` are in the order of the rounds, and so are those of each figure. `failures`
    are the reasons of failed measurements. Of `samples_s` a file keeps the histogram alone, which
    is `kept_histogram` after it was read."""

    def __init__(
        self, parameters: Parameters, published: float | None = None, left_out: str = ""
    ) -> None:
        self.parameters = parameters
        self.published = published
        self.left_out = left_out
        self.values: list[float] = []
        self.figures: dict[str, list[float]] = {}
        self.samples_s: list[float] = []
        self.kept_histogram: Histogram | None = None
        self.failures: list[str] = []

    def add(self, value: float, figures: Mapping[str, float], samples_s: Sequence[float]) -> None:
        """Adds one value of a round, with its figures and samples."""
        self.values.append(value)
        for name, figure in figures.items():
            self.figures.setdefault(name, []).append(figure)
        self.samples_s.extend(samples_s)

    @property
    def reason(self) -> str:
        """The reason why there are no values; empty if there are some."""
        if self.values:
            return ""
        return self.left_out or (self.failures[-1] if self.failures else "not measured")

    def interval(self, figure: str = "") -> Interval | None:
        """The median of the values, or of another figure, within its confidence interval."""
        values = self.figures.get(figure, []) if figure else self.values
        known = [value for value in values if math.isfinite(value)]
        return statistics.interval(known) if known else None

    @property
    def unstable(self) -> bool:
        return bool(self.values) and statistics.is_unstable(self.values)

    def median(self, figure: str = "") -> float:
        """The median; NaN without values."""
        found = self.interval(figure)
        return found.median if found else float("nan")

    def ratio(self, base: Result) -> Interval | None:
        """The row's values divided by those of another row of the same rounds; None if one of them
        has none."""
        if not self.values or not base.values:
            return None
        if self.failures or base.failures:
            # It is not known in which rounds values are missing.
            return statistics.ratio(self.values, base.values)
        return statistics.paired_ratio(self.values, base.values)


class Results:
    """The rows of one experiment, with its calibration."""

    def __init__(
        self,
        name: str,
        unit: str,
        rows: list[Result],
        calibration: Parameters,
    ) -> None:
        self.name = name
        self.unit = unit
        self.rows = rows
        self.calibration = calibration

    def __iter__(self) -> Iterator[Result]:
        return iter(self.rows)

    def where(self, **parameters: Any) -> Results:
        """The rows that have these parameters."""
        found = [row for row in self.rows if parameters.items() <= row.parameters.items()]
        return Results(self.name, self.unit, found, self.calibration)

    def find(self, **parameters: Any) -> Result | None:
        """The only row that has these parameters."""
        found = self.where(**parameters).rows
        assert len(found) <= 1, f"{parameters} are not one row"
        return found[0] if found else None

    def measured(self, **parameters: Any) -> Result | None:
        """Like `find`, but only a row with values."""
        found = self.find(**parameters)
        return found if found and found.values else None

    def ratio(self, over: Parameters, base: Parameters) -> float:
        """The median of the ratios of two rows, round by round; NaN if one has no values. `over`
        and `base` each identify a single row."""
        value, other = self.find(**over), self.find(**base)
        found = value.ratio(other) if value and other else None
        return found.median if found else math.nan

    def distinct(self, parameter: str) -> list[Any]:
        """The values of a parameter in the order of the rows."""
        found = [row.parameters for row in self]
        return list(dict.fromkeys(each[parameter] for each in found if parameter in each))
