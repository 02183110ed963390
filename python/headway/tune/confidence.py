"""Confidence intervals that stay valid however often they are looked at. Pure, without chance.

The values are logarithms of ratios, one from each round of an experiment, so the exponential of
their mean is a ratio. An experiment looks after each round and stops once it knows enough. The
interval of an ordinary t-test does not allow that: looking twenty times makes its 5 % about 25 %.
These intervals do: with probability 1 - `level` or more, *all* of them contain the true mean.

They are the confidence sequence that belongs to the sequential t-test with a mixture over effects:
a mean m is in the interval while the Bayes factor of the t statistic against m is below 1 / level.
With n values, t their t statistic against m, and k = 1 + n g,

    BF(t) = k**-0.5 * ((1 + t**2 / (n - 1)) / (1 + t**2 / ((n - 1) * k))) ** (n / 2).

The mean divided by the standard deviation has the prior N(0, g) and the standard deviation the
right Haar prior, under which BF is a test martingale for every standard deviation, so Ville's
inequality bounds the chance that it ever reaches 1 / level. Sources: Lai, "On confidence
sequences", Annals of Statistics 4, 1976; Wang and Ramdas, "Anytime-valid t-tests and confidence
sequences for Gaussian means with unknown variance", Sequential Analysis 44, 2025; the prior's
optional stopping, Hendriksen, de Heide and Grünwald, Bayesian Analysis 16, 2021.

The proof is for normally distributed values, and log ratios of blocks are means or percentiles of
many requests. `tests/tune/test_confidence.py` shows what the level is worth for skewed ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

# The variance of the prior. What a policy cures is many standard deviations large, so a wide prior
# decides after 4 rounds; equivalence then needs some 5 % more rounds than with the best prior.
PRIOR_VARIANCE = 30.0
# Few values may agree by chance, and values that are rounded agree often.
LEAST_DEVIATION = 0.01


class Effect(NamedTuple):
    """A ratio to the control within its interval, from 0 to infinity while nothing is known."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.ratio):
            return "-"
        interval = f" [{self.low:.2f}, {self.high:.2f}]" if math.isfinite(self.high) else ""
        return f"{self.ratio:.2f}{interval}"


UNKNOWN = Effect(math.nan, 0.0, math.inf)


def effect(logarithms: Sequence[float], level: float) -> Effect:
    """The ratio whose logarithms were found, within an interval that fails with probability `level`
    at most, over all rounds together."""
    if len(logarithms) < 2:
        return UNKNOWN
    mean = fmean(logarithms)
    variance = math.fsum((each - mean) ** 2 for each in logarithms) / (len(logarithms) - 1)
    width = max(math.sqrt(variance), LEAST_DEVIATION) * widths(len(logarithms), level)
    if width == math.inf:
        return UNKNOWN._replace(ratio=math.exp(mean))
    return Effect(math.exp(mean), math.exp(mean - width), math.exp(mean + width))


def widths(count: int, level: float) -> float:
    """Half the width of the interval of so many values, in standard deviations; infinite for few
    values, none of which BF could reject."""
    mixed = 1 + count * PRIOR_VARIANCE
    # BF(t) = 1 / level, solved for x = t**2 / (count - 1).
    rejecting = (math.sqrt(mixed) / level) ** (2 / count)
    if rejecting >= mixed:
        return math.inf
    x = (rejecting - 1) / (1 - rejecting / mixed)
    return math.sqrt(x * (count - 1) / count)
