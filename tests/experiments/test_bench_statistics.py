"""Intervals cover what they say they cover; percentiles are numpy's; histograms have the scale of
the GIL report.

Chance is seeded: each of these tests draws the same values every time.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from launch import headway

from headway.experiments import rank_test
from headway.experiments.histogram import histogram, percentile, upper_bound_ns
from headway.output import statistics
from headway.output.results import Result
from headway.output.statistics import Interval

try:
    # Here, because numpy starts threads that stay.
    import numpy
except ImportError:
    numpy = None

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


@pytest.mark.skipif(numpy is None, reason="numpy is not there to compare with")
def test_percentiles_are_numpy_s() -> None:
    chance = random.Random(1)
    for count in (1, 2, 3, 7, 10, 99, 100, 101, 1000):
        samples = [chance.expovariate(100) for _ in range(count)]
        found = histogram(samples)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
            assert found[name] == numpy.quantile(samples, share, method="inverted_cdf")
        assert found["p999"] == numpy.quantile(samples, 0.999, method="inverted_cdf")
        for hundredth in range(101):
            share = hundredth / 100
            expected = numpy.quantile(samples, share, method="inverted_cdf")
            assert percentile(sorted(samples), share) == expected


def test_a_histogram_counts_every_sample_in_its_bucket() -> None:
    chance = random.Random(2)
    samples = [10 ** chance.uniform(-8, 2.5) for _ in range(5000)]
    found = histogram(samples)
    assert found["count"] == sum(count for _, count in found["buckets"]) == len(samples)
    assert found["sum"] == pytest.approx(sum(samples))
    assert (found["min"], found["max"]) == (min(samples), max(samples))
    before = 0.0
    # Times are counted in whole nanoseconds.
    rounded = [round(sample * 1e9) / 1e9 for sample in samples]
    for bound, count in found["buckets"]:
        assert count == sum(before <= sample < bound for sample in rounded)
        before = bound


def test_an_empty_histogram_has_zeros() -> None:
    found = histogram([])
    assert (found["count"], found["sum"], found["buckets"]) == (0, 0, [])
    assert [found[name] for name in ("min", "max", "p50", "p999")] == [0.0] * 4


def test_buckets_are_at_most_a_sixteenth_wide() -> None:
    for ns in (1_000, 1_500, 4_096, 5_000_000, 99_999_999_999):
        bound = upper_bound_ns(ns)
        low = bound - 1
        while upper_bound_ns(low - max(1, low // 4096)) == bound:
            low -= max(1, low // 4096)
        assert (bound - low) / low <= 0.0625
    assert upper_bound_ns(0) == upper_bound_ns(511) == 512
    assert upper_bound_ns(2**38) == upper_bound_ns(2**50) == 2**64 - 1


CONTENTION = """
import threading, time
lock = threading.Lock()
def work():
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        with lock:
            sum(range(2000))
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
"""


def test_the_scale_is_that_of_the_gil_report(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = headway("run", "--json", file, "-c", CONTENTION)
    assert result.returncode == 0, result.stderr
    bounds = {round(bound * 1e9) for bound in _bounds(json.loads(file.read_text()))}
    assert bounds
    assert {upper_bound_ns(bound - 1) for bound in bounds} == bounds


def _bounds(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        yield from (bound for bound, _ in value.get("buckets", ()))
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _bounds(each)


@pytest.mark.parametrize(
    ("values", "others"),
    [
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]),
        ([1, 4, 6], [2, 3, 5, 7]),
        ([1, 1, 2, 2], [2, 3, 3, 3, 3]),
        ([5, 5], [5, 5, 5]),
        ([1, 9, 9, 9, 9, 9], [9, 9]),
        ([3], [1, 2]),
    ],
)
def test_p_is_the_share_of_all_ways_to_deal_the_values_out(
    values: list[float], others: list[float]
) -> None:
    pool = sorted([*values, *others])
    rank = {each: pool.index(each) + (pool.count(each) + 1) / 2 for each in pool}
    mean = len(values) * (len(pool) + 1) / 2
    apart = abs(sum(rank[each] for each in values) - mean)
    deals = list(combinations(pool, len(values)))
    as_far = sum(abs(sum(rank[each] for each in deal) - mean) >= apart for deal in deals)
    assert rank_test.p_value(values, others) == pytest.approx(as_far / len(deals))
    assert rank_test.p_value(others, values) == pytest.approx(as_far / len(deals))


def test_p_cannot_be_less_than_values_allow() -> None:
    assert rank_test.least_p(5, 5) == pytest.approx(2 / 252)
    assert rank_test.p_value([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == rank_test.least_p(5, 5)
    assert rank_test.least_p(1, 1) == 1


def test_many_values_are_compared_nearly_as_exactly() -> None:
    chance = random.Random(3)
    for shift in (0.0, 0.1, 0.2):
        values = [chance.random() for _ in range(50)]
        others = [chance.random() + shift for _ in range(50)]
        exact = rank_test.p_value(values, others)
        counts = tuple((2 * place + 2, 1) for place in range(100))
        ordered = sorted([*values, *others])
        found = sum(2 * ordered.index(each) + 2 for each in values)
        near = rank_test._approximate(found, counts, 50, 50)
        assert near == pytest.approx(exact, rel=0.1, abs=0.002)
    assert rank_test.p_value([1.0] * 80, [1.0] * 80) == 1
    assert rank_test.p_value([1.0] * 80, [2.0] * 80) < 1e-20


def test_equal_distributions_are_seldom_told_apart() -> None:
    for name, (draw, _) in DISTRIBUTIONS.items():
        chance = random.Random(name)
        cases = 1000
        wrong = sum(
            rank_test.p_value([draw(chance) for _ in range(7)], [draw(chance) for _ in range(7)])
            < 0.05
            for _ in range(cases)
        )
        # 0.05 and three standard errors.
        assert wrong / cases < 0.071, name


def test_holm_corrects_for_the_number_of_rows() -> None:
    # In the order of their size: 4 p, 3 p, 2 p and p, never falling.
    found = rank_test.holm([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert rank_test.holm([0.6, 0.7]) == [1.0, 1.0]
    assert rank_test.holm([]) == []
