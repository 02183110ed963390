"""Computes the figures for the diagnosis of a GIL from the spans of a timeline."""

from __future__ import annotations

from bisect import bisect_right
from statistics import median

from headway.report import diagnosis
from headway.report.diagnosis import Contention
from headway.trace.handoffs import of_gils, passes
from headway.trace.timeline import HOLD, WAIT, Span, Timeline

NS = 1e9  # in a second


def contention_of(timeline: Timeline, delayed: int) -> Contention:
    """The figures of the GIL that the thread `delayed`, an index in `timeline.threads`, waits
    for."""
    gil = timeline.threads[delayed].gil
    interval_s = timeline.switch_interval_ns / NS or None
    waits, holds = (of_gils(timeline, kind).get(gil, []) for kind in (WAIT, HOLD))
    handoffs_ns = sum(
        each.to_ns - each.from_ns
        for each in passes(timeline)
        if timeline.threads[each.taker].gil == gil
    )
    whole_s = diagnosis.whole_interval_s(interval_s or 0.0)
    kept_s, waited_for_kept_s = _kept(timeline, holds, waits, interval_s)
    held_s = sum(map(_length_s, holds))
    return Contention(
        interval_s=interval_s,
        wall_s=(timeline.end_ns - timeline.begin_ns) / NS,
        used_s=held_s + handoffs_ns / NS,
        waited_s=sum(map(_length_s, waits)),
        held_s=held_s,
        interval_waits_s=sum(length for length in map(_length_s, waits) if length >= whole_s),
        interval_holds_s=sum(length for length in map(_length_s, holds) if length >= whole_s),
        needed_s=_typical_s(holds, delayed),
        delayed_s=_typical_s(waits, delayed),
        kept_s=kept_s,
        waited_for_kept_s=waited_for_kept_s,
    )


def _kept(
    timeline: Timeline, holds: list[Span], waits: list[Span], interval_s: float | None
) -> tuple[float, float]:
    """Returns the longest time that a hold went on after its first drop request, and the sum of
    waits during all holds that went on for long, in seconds. A trace does not record the holder's
    CPU time."""
    limit_s = diagnosis.long_hold_s(interval_s, None)
    begins = [hold.from_ns for hold in holds]
    waiters = {wait.thread for wait in waits}
    asked_ns: dict[int, int] = {}
    for request in timeline.drop_requests:
        place = bisect_right(begins, request.at_ns) - 1
        if place >= 0 and request.waiter in waiters and request.at_ns <= holds[place].to_ns:
            asked_ns.setdefault(place, request.at_ns)
    kept = {place: (holds[place].to_ns - ns) / NS for place, ns in asked_ns.items()}
    long = [holds[place] for place, length_s in kept.items() if length_s >= limit_s]
    waited_ns = sum(
        max(0, min(wait.to_ns, hold.to_ns) - max(wait.from_ns, hold.from_ns))
        for hold in long
        for wait in waits
    )
    return max(kept.values(), default=0.0), waited_ns / NS


def _length_s(span: Span) -> float:
    return (span.to_ns - span.from_ns) / NS


def _typical_s(spans: list[Span], thread: int) -> float:
    return median([_length_s(span) for span in spans if span.thread == thread] or [0.0])
