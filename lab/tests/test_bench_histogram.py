"""Percentiles are numpy's; histograms have the scale of the GIL report; the rank test counts ways.

Chance is seeded: each of these tests draws the same values every time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from launch import headway
from test_statistics import DISTRIBUTIONS

from headway.output.statistics import percentile
from headway_lab import rank_test
from headway_lab.histogram import histogram, upper_bound_ns

try:
    # Here, because numpy starts threads that stay.
    import numpy
except ImportError:
    numpy = None


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
