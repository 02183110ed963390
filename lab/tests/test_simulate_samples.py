"""Times of which only quantiles are known."""

from __future__ import annotations

import pytest

from headway_lab.simulated.samples import gathered

NONE = {"count": 0, "sum_ns": 0, "max_ns": 0, "quantiles_ns": []}


def evenly(count: int, least_ns: float, most_ns: float) -> dict[str, object]:
    """1,001 quantiles of so many times between two."""
    width_ns = (most_ns - least_ns) / 1_000
    return {
        "count": count,
        "sum_ns": count * (least_ns + most_ns) / 2,
        "max_ns": most_ns,
        "quantiles_ns": [least_ns + place * width_ns for place in range(1_001)],
    }


def test_nothing_has_no_quantiles() -> None:
    assert gathered([]) is None
    assert gathered([NONE, NONE]) is None


def test_quantiles_are_those_that_were_given() -> None:
    found = gathered([evenly(5_000, 0, 1e9), NONE])
    assert found is not None
    assert [found.quantile_s(share) for share in (0, 0.5, 0.99, 1)] == pytest.approx(
        [0, 0.5, 0.99, 1], abs=1e-3
    )
    assert (found.count, found.mean_s) == (5_000, 0.5)


def test_the_larger_part_has_the_larger_weight() -> None:
    found = gathered([evenly(300, 1e6, 1e6), evenly(700, 9e6, 9e6)])
    assert found is not None
    assert found.quantile_s(0.29) == 1e-3
    assert found.quantile_s(0.31) == 9e-3
    assert found.mean_s == pytest.approx(6.6e-3)


def test_a_spread_has_no_more_times_than_there_were() -> None:
    few, many = gathered([evenly(3, 1e9, 2e9)]), gathered([evenly(100_000, 1e9, 2e9)])
    assert few is not None
    assert many is not None
    assert few.spread_s() == pytest.approx([1, 1.5, 2], abs=1e-3)
    assert len(many.spread_s()) == 1_001
    assert len(many.spread_s(500)) == 500
