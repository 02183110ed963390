"""Compares two files of results, row by row: which rows differ, how much, and how surely. Pure.

Two rows match if their experiment and all their parameters are equal. This module does not draw a
comparison, and does not know the reason for a difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headway.output import statistics
from headway.output.results import Parameters, Result, describe
from headway.output.statistics import Interval
from headway_lab import rank_test
from headway_lab.rank_test import LEVEL
from headway_lab.results_file import Kept, KeptExperiment

# The metadata that differ between any two runs.
VOLATILE = {"time", "seconds", "load", "steal"}
TIMES_AND_RATES = {"s", "ms", "us", "µs", "ns", "rpm"}
# With this many values in both rows, any realistic number of rows can be significant.
MOST_VALUES = 25


class Difference(NamedTuple):
    """A row for which both files have values. `ratio` is B's median divided by A's. `corrected` is
    `p`, corrected for the number of compared rows."""

    experiment: str
    unit: str
    higher_is_better: bool | None
    a: Result
    b: Result
    ratio: Interval
    p: float
    corrected: float

    @property
    def significant(self) -> bool:
        return self.corrected < LEVEL

    @property
    def worse_by(self) -> float:
        """The share of A's median by which B's is worse. It is below 0 if B is better, and 0 if the
        experiment does not define which direction is better."""
        if self.higher_is_better is None:
            return 0.0
        change = self.ratio.median - 1
        return -change if self.higher_is_better else change

    @property
    def verdict(self) -> str:
        """A word in the experiment's own direction."""
        if not self.significant:
            return ""
        # The better direction is not defined, or there is no ratio.
        if not self.worse_by or math.isnan(self.worse_by):
            return "different"
        words = ("faster", "slower") if is_speed(self.unit) else ("better", "worse")
        return words[self.worse_by > 0]


def is_speed(unit: str) -> bool:
    return unit.split(" ")[0] in TIMES_AND_RATES or unit.endswith("/s")


class Single(NamedTuple):
    """A row that cannot be compared, and why."""

    experiment: str
    parameters: Parameters
    reason: str
    # The row had values in A, and every measurement of it failed in B.
    broke: bool = False

    def __str__(self) -> str:
        return f"{self.experiment}, {describe(self.parameters)}: {self.reason}"


class Comparison(NamedTuple):
    differences: list[Difference]
    singles: list[Single]
    # The name of an entry, its value in A and its value in B.
    metadata: list[tuple[str, Any, Any]]

    @property
    def provable(self) -> bool:
        """Whether any row has enough values to be significant among all rows."""
        least = [
            rank_test.least_p(len(row.a.values), len(row.b.values)) for row in self.differences
        ]
        return bool(least) and min(least) * len(least) < LEVEL

    @property
    def values_needed(self) -> int:
        """The number of values of each row that would be enough for this number of rows."""
        for count in range(2, MOST_VALUES):
            if rank_test.least_p(count, count) * len(self.differences) < LEVEL:
                return count
        return MOST_VALUES

    def regressions(self, share: float) -> list[Difference]:
        """Rows that are significantly worse by more than this share of A's median."""
        return [row for row in self.differences if row.significant and row.worse_by > share]


def compare(a: Kept, b: Kept) -> Comparison:
    of_a, of_b = _rows(a), _rows(b)
    singles, pairs = [], []
    for key, (experiment, row) in of_a.items():
        if key not in of_b:
            singles.append(Single(experiment.results.name, row.parameters, "only in A"))
            continue
        other_experiment, other = of_b[key]
        reason = _incomparable(experiment, other_experiment, row, other)
        if reason:
            broke = bool(row.values and not other.values and other.failures)
            singles.append(Single(experiment.results.name, row.parameters, reason, broke))
        else:
            pairs.append((experiment, row, other))
    for key, (experiment, row) in of_b.items():
        if key not in of_a:
            singles.append(Single(experiment.results.name, row.parameters, "only in B"))
    p_values = [rank_test.p_value(row.values, other.values) for _, row, other in pairs]
    corrected = rank_test.holm(p_values)
    differences = [
        Difference(
            experiment.results.name,
            experiment.results.unit,
            experiment.higher_is_better,
            row,
            other,
            statistics.ratio(other.values, row.values),
            p,
            for_all,
        )
        for (experiment, row, other), p, for_all in zip(pairs, p_values, corrected, strict=True)
    ]
    return Comparison(differences, singles, _metadata(a.metadata, b.metadata))


Key = tuple[str, frozenset[tuple[str, Any]]]


def _rows(kept: Kept) -> dict[Key, tuple[KeptExperiment, Result]]:
    return {
        (experiment.results.name, frozenset(row.parameters.items())): (experiment, row)
        for experiment in kept.experiments
        for row in experiment.results
    }


def _incomparable(a: KeptExperiment, b: KeptExperiment, row: Result, other: Result) -> str:
    """The reason why two rows of the same name cannot be compared; empty if they can."""
    units = a.results.unit, b.results.unit
    if units[0] != units[1]:
        return f"the unit is {units[0]!r} in A and {units[1]!r} in B"
    reasons = [
        f"not in {file}: {each.reason}" for file, each in (("A", row), ("B", other)) if each.reason
    ]
    return "; ".join(reasons)


def _metadata(a: Mapping[str, object], b: Mapping[str, object]) -> list[tuple[str, Any, Any]]:
    """The entries that both files have with different values."""
    return [
        (name, a[name], b[name])
        for name in a
        if name in b and name not in VOLATILE and a[name] != b[name]
    ]


def counts(differences: Sequence[Difference]) -> dict[str, int]:
    """The number of rows of each verdict, including ""."""
    found: dict[str, int] = {}
    for each in differences:
        found[each.verdict] = found.get(each.verdict, 0) + 1
    return found
