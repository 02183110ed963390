"""What a raw row of the books holds (`headway._native` makes it), and how distributions add up."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Report = dict[str, Any]

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
)
# The waits of a thread of a free-threaded build (crates/gil, `parks`): for locks and events, and
# because another thread stopped the world.
PARK_TIMES = ("parked", "suspended")
# Raw figures that are the longest of something: they have no sum and no difference. A policy other
# than interval keeps the first two, by the class of the thread that waited.
GIL_MAXIMA = {
    "longest_wait_io_bound": "longest_io_bound_wait_ns",
    "longest_wait_cpu_bound": "longest_cpu_bound_wait_ns",
}
THREAD_MAXIMA = {"longest_unanswered": "longest_answer_ns"}


def sum_distributions(distributions: Iterable[Report]) -> Report:
    total: Report = {"count": 0, "sum_ns": 0, "min_ns": None, "max_ns": None}
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
