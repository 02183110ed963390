"""SAMPLES of an outcome (`scenario.Outcome`): many times, of which the quantiles are known.

Pure. This module does not know the meaning of the times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

NS = 1e9
# The number of quantiles in SAMPLES.
MOST = 1_001
# Rounding errors make a sum of weights differ from their product by this share.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Samples:
    """`times_s` are in order; `weights` are how many times each of them stands for. `count` and
    `sum_s` are exact, and so are the least and the greatest."""

    count: int
    sum_s: float
    times_s: list[float]
    weights: list[float]

    @property
    def mean_s(self) -> float:
        return self.sum_s / self.count

    def quantile_s(self, share: float) -> float:
        """The least time that this share of all times does not exceed."""
        return self.quantiles_s([share])[0]

    def quantiles_s(self, shares: Sequence[float]) -> list[float]:
        upto = list(accumulate(self.weights))
        places = (bisect_left(upto, share * upto[-1] * (1 - ROUNDING)) for share in shares)
        return [self.times_s[place] for place in places]

    def spread_s(self, most: int = MOST) -> list[float]:
        """At most `most` times with the same distribution."""
        count = min(self.count, most)
        if count == 1:
            return self.times_s[-1:]
        return self.quantiles_s([place / (count - 1) for place in range(count)])


def gathered(found: Iterable[Mapping[str, Any]]) -> Samples | None:
    """The sum of one or several SAMPLES; None if all are empty."""
    some = [each for each in found if each["count"]]
    if not some:
        return None
    weighted = sorted(
        (time_ns / NS, each["count"] / len(each["quantiles_ns"]))
        for each in some
        for time_ns in each["quantiles_ns"]
    )
    return Samples(
        sum(each["count"] for each in some),
        sum(each["sum_ns"] for each in some) / NS,
        [time_s for time_s, _ in weighted],
        [weight for _, weight in weighted],
    )
