"""SAMPLES of an outcome (`scenario.Outcome`): many times, of which their quantiles are known.

Pure. It knows nothing of what the times are of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

NS = 1e9
# As many as SAMPLES have.
MOST = 1_001
# Of a sum of weights, which may have more or less of it than their product.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Samples:
    """`times_s` are in order; each stands for as many times as `weights` says. `count` and `sum_s`
    are exact, and so are the least and the greatest."""

    count: int
    sum_s: float
    times_s: list[float]
    weights: list[float]

    @property
    def mean_s(self) -> float:
        return self.sum_s / self.count

    def quantile_s(self, share: float) -> float:
        """The least time that so large a share of all is not above."""
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
