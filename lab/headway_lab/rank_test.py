"""Tests whether rows differ: Mann and Whitney's test, exact, and Holm's correction for many rows.
Pure.

Values are replaced by their ranks among the values of both rows. If the rows differed only by
chance, every assignment of the ranks to the rows would be equally likely. p is the share of
assignments in which the rows are at least as far apart as they are (Mann and Whitney, "On a test of
whether one of two random variables is stochastically larger than the other", Annals of Mathematical
Statistics 18, 1947). The test assumes nothing about distributions; equal values have mean ranks.
With n and m values p is at least 2 / C(n + m, n), so a few values cannot prove anything among many
rows: see `least_p`.

Of many rows some differ by chance. Holm's procedure ("A simple sequentially rejective multiple test
procedure", Scandinavian Journal of Statistics 6, 1979) limits the probability that any row is
wrongly called different to the level.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

LEVEL = 0.05
# The number of values in both rows up to which the test is exact. Above, the normal approximation
# is close enough.
MOST_EXACT = 100


def p_value(values: Sequence[float], others: Sequence[float]) -> float:
    """The two-sided p."""
    places = Counter([*values, *others])
    # Twice the mean rank of equal values, which is a whole number.
    ranks: dict[float, int] = {}
    before = 0
    for value in sorted(places):
        ranks[value] = 2 * before + places[value] + 1
        before += places[value]
    found = sum(ranks[value] for value in values)
    counts = tuple((ranks[value], places[value]) for value in sorted(places))
    if before > MOST_EXACT:
        return _approximate(found, counts, len(values), len(others))
    return _exact(found, counts, len(values), len(others))


def _exact(found: int, counts: tuple[tuple[int, int], ...], count: int, other_count: int) -> float:
    # Sums of `count` doubled ranks have this mean.
    mean = count * (count + other_count + 1)
    apart = abs(found - mean)
    ways = _ways(counts, count)
    as_far = sum(number for total, number in ways if abs(total - mean) >= apart)
    return as_far / math.comb(count + other_count, count)


@lru_cache
def _ways(counts: tuple[tuple[int, int], ...], chosen: int) -> list[tuple[int, int]]:
    """The possible sums of `chosen` ranks out of (rank, how often), each with its number of ways.

    A polynomial in x with a term for each sum is stored as one large integer. Its digits, to a base
    that no coefficient reaches, are the coefficients, so that a multiplication by a power of x is a
    shift.
    """
    bits = sum(number for _, number in counts)
    sums = [1] + [0] * chosen
    for rank, number in counts:
        for _ in range(number):
            for size in range(chosen, 0, -1):
                sums[size] += sums[size - 1] << (bits * rank)
    result, mask = [], (1 << bits) - 1
    for total in range(sums[chosen].bit_length() // bits + 1):
        if number := sums[chosen] >> (bits * total) & mask:
            result.append((total, number))
    return result


def _approximate(
    found: int, counts: tuple[tuple[int, int], ...], count: int, other_count: int
) -> float:
    """The normal approximation, corrected for ties and for continuity."""
    all_count = count + other_count
    ties = sum(number**3 - number for _, number in counts) / (all_count * (all_count - 1))
    deviation = math.sqrt(count * other_count / 12 * (all_count + 1 - ties))
    apart = abs(found - count * (all_count + 1)) / 2 - 0.5
    if deviation == 0 or apart <= 0:
        return 1.0
    return min(1.0, 2 * NormalDist().cdf(-apart / deviation))


def least_p(count: int, other_count: int) -> float:
    """The p value if all values of one row are above all of the other, and none are equal."""
    return min(1.0, 2 / math.comb(count + other_count, count))


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p, corrected for the number of tests: a value below the level is significant at the
    level."""
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - done) * p_values[index]))
        corrected[index] = highest
    return corrected
