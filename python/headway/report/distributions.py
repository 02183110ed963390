"""The raw rows of the counters that `headway._native` returns, and the arithmetic of distributions:
sums, percentiles, histograms of the report."""

from __future__ import annotations

from headway.report.model import Histogram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    Raw = dict[str, Any]

GIL_TIMES = ("wall", "held", "handoff", "idle")
GIL_COUNTS = (
    "takes",
    "contended_takes",
    "voluntary_drops",
    "forced_drops",
    "drop_requests",
    "preemptions",
    "anomalies",
    "held_at_open",
    "held_now",
)
THREAD_COUNTS = (
    "takes",
    "contended_takes",
    "voluntary_drops",
    "forced_drops",
    "forced_waits",
    "preemptions",
    "collections",
)
# Parts of the time that a thread waited, and of the time that it held (`gil::hold_time` in
# crates/gil).
THREAD_PARTS = (
    "waited_preventable",
    "waited_unanswered",
    "waited_off_core",
    "waited_collection",
    "collected",
)
# The waits of threads in a free-threaded build (`parked_waits` in crates/gil): for locks and
# events, and while another thread stops the world.
PARK_TIMES = ("parked", "suspended")
# An iteration of an event loop and its parts, by their name in the report, and the other times of a
# loop (`loops` in crates/gil).
LOOP_PARTS = {
    "iteration": "duration",
    "computed": "computed",
    "waited": "waited",
    "blocked": "blocked",
}
LOOP_TIMES = (
    "polled",
    "late_computed",
    "late_waited",
    "late_blocked",
    "late_ran_blocked",
    "ran_blocked",
    "core_waited",
)
LOOP_COUNTS = ("late", "half_squares_us2")
# Maxima by their name in the report: raw figures that have neither a sum nor a difference. The
# policies other than interval keep those of GIL_MAXIMA, by the class of the waiting thread.
GIL_MAXIMA = {
    "longest_wait_io_bound_s": "longest_io_bound_wait_ns",
    "longest_wait_cpu_bound_s": "longest_cpu_bound_wait_ns",
}
THREAD_MAXIMA = {
    "longest_unanswered_s": "longest_answer_ns",
    "cpu_in_longest_unanswered_s": "cpu_in_longest_answer_ns",
    "longest_unanswered_cpu_s": "longest_answer_cpu_ns",
    "unanswered_with_most_cpu_s": "answer_with_most_cpu_ns",
    "longest_collection_s": "longest_collection_ns",
    "holding_now_s": "holding_ns",
    "waiting_now_s": "waiting_ns",
}
LOOP_MAXIMA = {"iterating_now_s": "iterating_ns"}


def sum_distributions(distributions: Iterable[Raw]) -> Raw:
    total: Raw = {"count": 0, "sum_ns": 0, "min_ns": None, "max_ns": None}
    counts: dict[int, int] = {}
    for one in distributions:
        total["count"] += one["count"]
        total["sum_ns"] += one["sum_ns"]
        for key, choose in (("min_ns", min), ("max_ns", max)):
            known = [value for value in (total[key], one[key]) if value is not None]
            total[key] = choose(known) if known else None
        for bound, number in one["buckets"]:
            counts[bound] = counts.get(bound, 0) + number
    total["buckets"] = sorted(counts.items())
    return total


PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
# The scale of the buckets, in nanoseconds: see crates/measure/src/scale.rs.
FIRST_BOUND_NS = 512
LAST_BOUND_NS = 2**38
UNBOUNDED_NS = 2**64 - 1
STEPS_PER_POWER = 16


NS = 1e9  # in a second


def to_histogram(distribution: Raw) -> Histogram:
    """The histogram of the report, in seconds."""

    def seconds(ns: int | None) -> float | None:
        return None if ns is None else ns / NS

    return Histogram(
        count=distribution["count"],
        sum_s=distribution["sum_ns"] / NS,
        min_s=seconds(distribution["min_ns"]),
        max_s=seconds(distribution["max_ns"]),
        **{f"{key}_s": seconds(ns) for key, ns in percentiles_ns(distribution).items()},
        buckets=[(bound / NS, number) for bound, number in distribution["buckets"]],
    )


def percentiles_ns(distribution: Raw) -> dict[str, int | None]:
    """Each of PERCENTILES in nanoseconds; None for an empty distribution.

    A percentile is the smallest duration that the given share of durations do not exceed. Its
    bucket is exact. Within the bucket it is interpolated linearly between the bucket's bounds, or
    the extremes of the distribution if these are known and lie in the same bucket.
    """
    buckets, count = distribution["buckets"], distribution["count"]
    extremes = distribution["min_ns"], distribution["max_ns"]
    return {
        name: _percentile_ns(buckets, count, extremes, share) for name, share in PERCENTILES.items()
    }


def _percentile_ns(
    buckets: Sequence[tuple[int, int]],
    count: int,
    extremes: tuple[int | None, int | None],
    share: float,
) -> int | None:
    """The same computation as `percentile_ns` in crates/measure/src/histogram.rs."""
    rank = max(-int(-share * count // 1), 1)  # rounded up, without `math`
    least_ns, longest_ns = extremes
    below = 0
    for bound_ns, number in buckets:
        if below + number < rank:
            below += number
            continue
        if bound_ns <= FIRST_BOUND_NS and least_ns == 0:
            # Waits of length 0 are counted in the first bucket.
            return 0
        # Two ranks that enclose the bucket's durations, and the durations at these ranks.
        first, first_ns = below, _lower_bound_ns(bound_ns)
        last, last_ns = below + number + 1, bound_ns
        if below == 0 and least_ns is not None and first_ns <= least_ns <= last_ns:
            first, first_ns = 1, least_ns
        is_last = below + number >= count
        if is_last and longest_ns is not None and first_ns <= longest_ns <= last_ns:
            last, last_ns = below + number, longest_ns
        elif bound_ns >= UNBOUNDED_NS:
            return first_ns
        part = (rank - first) / (last - first) if last > first else 0.0
        return round(first_ns + part * (last_ns - first_ns))
    return longest_ns


def _lower_bound_ns(bound_ns: int) -> int:
    """The lower bound of the bucket whose upper bound is `bound_ns`."""
    if bound_ns <= FIRST_BOUND_NS:
        return 0
    if bound_ns > LAST_BOUND_NS:
        return LAST_BOUND_NS
    return bound_ns - (1 << (bound_ns - 1).bit_length() - 1) // STEPS_PER_POWER
