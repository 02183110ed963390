"""Arithmetic on histograms as `_native.telemetry_read` returns them.

A bucket counts the durations shorter than its bound and not shorter than the bound before, so
figures computed from buckets alone are off by at most one bucket, 6.25 %. Percentiles are
interpolated within their buckets (`headway.report.distributions.percentiles_ns`), which avoids a
bias.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, TypedDict, cast

from headway.report.distributions import PERCENTILES, percentiles_ns


class Histogram(TypedDict):
    """All times are in seconds. `buckets` are pairs of an upper bound and a count on Headway's
    log-linear scale, without the empty buckets."""

    count: int  #: How many durations.
    sum: float  #: Their sum.
    min: float  #: The shortest.
    max: float  #: The longest.
    p50: float  #: The median.
    p90: float  #: The 90th percentile.
    p95: float  #: The 95th percentile.
    p99: float  #: The 99th percentile.
    p999: float  #: The 99.9th percentile.
    buckets: Sequence[tuple[float, int]]  #: Pairs of an upper bound in seconds and a number.


class Quantiles(TypedDict):
    """The figures of a histogram that are shown. All times are in seconds."""

    count: int
    mean: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


Percentile = Literal["p50", "p90", "p95", "p99"]

NS = 1e9  # in a second


def quantiles(histogram: Histogram | None) -> Quantiles | None:
    """The figures of a histogram that are shown; `None` if it is empty."""
    if not histogram or not histogram["count"]:
        return None
    return {
        "count": histogram["count"],
        "mean": histogram["sum"] / histogram["count"],
        "min": histogram["min"],
        "p50": histogram["p50"],
        "p90": histogram["p90"],
        "p95": histogram["p95"],
        "p99": histogram["p99"],
        "max": histogram["max"],
    }


def zeros(count: int) -> Histogram:
    """The histogram of `count` durations of 0 s."""
    buckets = [(0.0, count)] if count else []
    found = {"count": count, "sum": 0.0, "min": 0.0, "max": 0.0, "buckets": buckets}
    return cast(Histogram, {**found, **dict.fromkeys(PERCENTILES, 0.0)})


def total(histograms: Iterable[Histogram | None]) -> Histogram | None:
    """The sum of `histograms`; `None` if all are empty."""
    present = [each for each in histograms if each and each["count"]]
    if len(present) < 2:
        return present[0] if present else None
    counts: dict[float, int] = {}
    for each in present:
        for bound, count in each["buckets"]:
            counts[bound] = counts.get(bound, 0) + count
    buckets = sorted(counts.items())
    figures = {
        "count": sum(each["count"] for each in present),
        "sum": sum(each["sum"] for each in present),
        "min": min(each["min"] for each in present),
        "max": max(each["max"] for each in present),
    }
    whole = {
        "count": figures["count"],
        "min_ns": round(figures["min"] * NS),
        "max_ns": round(figures["max"] * NS),
        "buckets": [(round(bound * NS), number) for bound, number in buckets],
    }
    percentiles = {name: (ns or 0) / NS for name, ns in percentiles_ns(whole).items()}
    return cast(Histogram, {**figures, **percentiles, "buckets": buckets})


def time_from(histogram: Histogram | None, start: float) -> float:
    """The sum in seconds of the durations of `start` and longer, computed from the middles of the
    buckets and limited to the exact sum of all durations."""
    if not histogram:
        return 0.0
    time = sum(_middle(bound, histogram) * count for bound, count in _from(histogram, start))
    return float(min(time, histogram["sum"]))


def time_below(histogram: Histogram | None, end: float) -> float:
    """The sum in seconds of the durations in the buckets that end at `end` or below, computed from
    the middles of the buckets."""
    if not histogram:
        return 0.0
    below = [each for each in histogram["buckets"] if each[0] <= end]
    time = sum(_middle(bound, histogram) * count for bound, count in below)
    return float(min(time, histogram["sum"]))


def share_from(histogram: Histogram | None, start: float) -> float:
    """The share of the durations that are `start` or longer."""
    if not histogram or not histogram["count"]:
        return 0.0
    return float(sum(count for _, count in _from(histogram, start)) / histogram["count"])


def _from(histogram: Histogram, start: float) -> Iterable[tuple[float, int]]:
    # The middle of a bucket decides whether the whole bucket counts.
    return (
        (bound, count)
        for bound, count in histogram["buckets"]
        if _middle(bound, histogram) >= start
    )


def _middle(bound: float, histogram: Histogram) -> float:
    # A bucket is a sixteenth of a power of two wide, which is 1/17 to 1/32 of its bound.
    middle = bound * (1 - 1 / 40)
    return float(min(max(middle, histogram["min"]), histogram["max"]))


def mean_error(histogram: Histogram | None) -> float | None:
    """The standard error of the mean as a share of the mean.

    `None` if there are fewer than two durations.
    """
    if not histogram or histogram["count"] < 2 or histogram["sum"] <= 0:
        return None
    count, mean = histogram["count"], histogram["sum"] / histogram["count"]
    squares = sum(
        number * (_middle(bound, histogram) - mean) ** 2 for bound, number in histogram["buckets"]
    )
    return math.sqrt(squares / (count - 1) / count) / float(mean)
