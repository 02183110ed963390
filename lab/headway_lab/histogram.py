"""Single times as a histogram: percentiles of the times themselves, and their counts on the
log-linear scale of crates/measure/src/scale.rs (as in HdrHistogram). Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headway.output.results import Result
from headway.output.statistics import percentile
from headway.recorder.records.histogram import Histogram, zeros

NS = 1_000_000_000  # in a second
# Powers of two of nanoseconds, each divided into 16 buckets. All shorter times share a bucket, and
# so do all longer ones.
LOWEST_POWER = 9
HIGHEST_POWER = 37
STEPS = 16
LONGER_NS = 2**64 - 1


def histogram(samples_s: Sequence[float]) -> Histogram:
    """Percentiles are exact; a bucket is up to 6.25 % wide."""
    if not samples_s:
        return zeros(0)
    ordered = sorted(samples_s)
    counts = Counter(upper_bound_ns(round(sample * NS)) for sample in ordered)
    return {
        "count": len(ordered),
        "sum": math.fsum(ordered),
        "min": ordered[0],
        "max": ordered[-1],
        "p50": percentile(ordered, 0.5),
        "p90": percentile(ordered, 0.9),
        "p95": percentile(ordered, 0.95),
        "p99": percentile(ordered, 0.99),
        "p999": percentile(ordered, 0.999),
        "buckets": [(bound / NS, count) for bound, count in sorted(counts.items())],
    }


def histogram_of(result: Result) -> Histogram | None:
    """The histogram of a row's single times, if there are any."""
    return histogram(result.samples_s) if result.samples_s else result.kept_histogram


def upper_bound_ns(ns: int) -> int:
    """The upper bound of the bucket of a time: the first time that is too long for it."""
    power = ns.bit_length() - 1
    if ns < 1 << LOWEST_POWER:
        return 1 << LOWEST_POWER
    if power > HIGHEST_POWER:
        return LONGER_NS
    width = (1 << power) // STEPS
    return (ns // width + 1) * width
