"""Intervals cover what they say they cover.

Chance is seeded: each of these tests draws the same values every time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest

from headway.output import statistics
from headway.output.results import Result
from headway.output.statistics import Interval

Draw = Callable[[random.Random], float]

# Each with its true median. Of the last, one value in ten is from far away.
DISTRIBUTIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda chance: chance.gauss(100, 5), 100.0),
    "lognormal": (lambda chance: chance.lognormvariate(0, 0.5), 1.0),
    "uniform": (lambda chance: chance.uniform(1, 2), 1.5),
    "bimodal": (lambda chance: chance.gauss(chance.choice((1.0, 2.0)), 0.1), 1.5),
    "contaminated": (
        lambda chance: chance.gauss(10, 1) * (1 if chance.random() < 0.9 else -5),
        # A tenth is far below, so the median of all is the 4/9 quantile of N(10, 1).
        9.8603,
    ),
}
WITHOUT_NEGATIVES = ("normal", "lognormal", "uniform", "bimodal")


def covered(draw: Draw, truth: float, count: int, cases: int) -> float:
    chance = random.Random(count)
    found = 0
    for _ in range(cases):
        made = statistics.interval([draw(chance) for _ in range(count)])
        found += made.low <= truth <= made.high
    return found / cases


@pytest.mark.parametrize("count", [3, 5, 7, 8, 10, 15, 25])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_an_interval_covers_the_median_as_often_as_it_says(name: str, count: int) -> None:
    # Five standard errors of a share of 3000 are at most 0.04 (at 0.75), 0.02 from n = 5 on.
    found = covered(*DISTRIBUTIONS[name], count, 3000)
    assert found == pytest.approx(statistics.coverage(count), abs=0.04 if count == 3 else 0.02)


def test_coverage_is_at_least_95_percent_where_that_can_be_had() -> None:
    assert [statistics.coverage(count) for count in (1, 2, 3, 4, 5)] == [
        0,
        0.5,
        0.75,
        0.875,
        0.9375,
    ]
    for count in range(6, 400):
        assert 0.95 <= statistics.coverage(count) <= 0.995
    # As many as a row can have.
    assert 0.95 <= statistics.coverage(10_000) <= 0.952


def test_no_narrower_interval_would_do() -> None:
    for count in range(6, 60):
        ordered = list(range(count))
        found = statistics.interval(ordered)
        rank = ordered.index(int(found.low)) + 1
        outside = 2 * sum(math.comb(count, lower) for lower in range(rank + 1)) / 2**count
        assert found.high == count - rank
        assert 1 - outside < 0.95


def test_an_interval_is_the_same_each_time_and_in_any_order() -> None:
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6, 5.0, 3.5, 8.0]
    assert statistics.interval(values) == statistics.interval(sorted(values)) == (3.5, 1.5, 8.0)
    assert statistics.interval([7.0]) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize(("count", "other_count"), [(5, 5), (7, 7), (5, 15), (10, 8), (25, 25)])
@pytest.mark.parametrize("name", WITHOUT_NEGATIVES)
def test_the_ratio_of_medians_is_covered(name: str, count: int, other_count: int) -> None:
    draw, _ = DISTRIBUTIONS[name]
    chance = random.Random(count * other_count)
    cases = 400
    inside = 0
    for _ in range(cases):
        values = [3 * draw(chance) for _ in range(count)]
        found = statistics.ratio(values, [draw(chance) for _ in range(other_count)])
        inside += found.low <= 3 <= found.high
    # 0.95 less three standard errors.
    assert inside / cases >= 0.917


def test_a_ratio_is_of_the_medians_and_within_its_interval() -> None:
    values, base = [20.0, 21, 22, 23, 24], [10.0, 10, 10, 11, 12]
    found = statistics.ratio(values, base)
    assert found.median == 2.2
    assert 20 / 12 <= found.low < 2.2 < found.high <= 24 / 10
    turned = statistics.ratio(base, values)
    assert turned.low == pytest.approx(1 / found.high)
    assert turned.high == pytest.approx(1 / found.low)


def test_a_ratio_knows_zero_and_refuses_negatives() -> None:
    assert statistics.ratio([0.0] * 5, [0.0] * 5) == (1, 1, 1)
    assert statistics.ratio([1.0] * 5, [0.0] * 5) == (math.inf, math.inf, math.inf)
    assert all(map(math.isnan, statistics.ratio([1.0, -1.0], [1.0, 2.0])))


def test_the_chances_of_a_resampled_median_are_those_of_all_resamples() -> None:
    for count in (1, 2, 3, 4, 5, 6):
        counted = dict.fromkeys(range(count), 0.0)
        middles = {(count - 1) // 2, count // 2}
        resamples = list(_resamples(count))
        for resample in resamples:
            for middle in middles:
                counted[sorted(resample)[middle]] += 1 / len(middles) / len(resamples)
        found = dict(statistics._median_chances(count))
        assert found == pytest.approx(counted)


def _resamples(count: int) -> Iterator[tuple[int, ...]]:
    if count == 0:
        yield ()
        return

    def extend(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == count:
            yield chosen
            return
        for place in range(count):
            yield from extend((*chosen, place))

    yield from extend(())


def test_rows_of_the_same_rounds_are_compared_round_by_round() -> None:
    # The machine became ten times slower in the middle; the ratio stayed.
    base = [1.0, 1.1, 1.0, 10.0, 11.0, 10.0]
    values = [2.0, 2.2, 2.0, 20.0, 22.0, 20.0]
    assert statistics.paired_ratio(values, base) == (2.0, 2.0, 2.0)
    # The last round was interrupted.
    assert statistics.paired_ratio(values, base[:5]) == (2.0, 2.0, 2.0)


def test_rows_that_lack_rounds_are_not_taken_for_pairs() -> None:
    one, two = Result({}), Result({})
    one.values, two.values = [1.0, 1.0, 10.0, 10.0], [2.0, 20.0, 20.0]
    two.failures = ["in the second round"]
    found = two.ratio(one)
    assert found is not None
    assert found.median == 20.0 / 5.5
    two.failures = []
    assert two.ratio(one) == (2.0, 2.0, 20.0)
    assert Result({}).ratio(one) is None


@pytest.mark.parametrize(
    ("values", "unstable"),
    [
        ([10.0, 10.5, 11.0, 10.2, 10.7], False),
        ([10.0, 10.5, 13.0, 10.2, 10.7], True),
        # One of many is far away: the median is as well known as before.
        ([10.0, 10.5, 11.0, 10.2, 10.7, 10.1, 10.6, 10.9, 10.3, 30.0], False),
        ([10.0], True),
        ([0.0] * 5, False),
    ],
)
def test_what_is_unstable(values: list[float], unstable: bool) -> None:
    assert statistics.is_unstable(values) is unstable


def test_what_is_not_finite_is_no_part_of_an_interval() -> None:
    row = Result({})
    row.values = [1.0, 2.0, 3.0]
    row.figures = {"p99_s": [math.nan, 0.2, 0.3], "nothing": [math.nan]}
    assert row.interval("p99_s") == Interval(0.25, 0.2, 0.3)
    assert row.interval("nothing") is None
