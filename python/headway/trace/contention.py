"""Computes the figures for the diagnosis of a GIL from the spans of a timeline."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from statistics import median

from headway.report import diagnosis
from headway.report.diagnosis import Contention
from headway.trace.handoffs import of_gils, passes
from headway.trace.timeline import COLLECTION, HOLD, WAIT, Span, Timeline

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
    collections = of_gils(timeline, COLLECTION).get(gil, [])
    kept_s, waited_for_kept_s = _kept(timeline, holds, waits, collections, interval_s)
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
        collection_s=_common_ns(waits, collections) / NS,
        longest_collection_s=max(map(_length_s, collections), default=0.0),
    )


def _kept(
    timeline: Timeline,
    holds: list[Span],
    waits: list[Span],
    collections: list[Span],
    interval_s: float | None,
) -> tuple[float, float]:
    """Returns the longest time that a hold went on after its first drop request, and the sum of
    waits during all holds that went on for long, in seconds, both without garbage collections. A
    trace does not record the holder's CPU time."""
    limit_s = diagnosis.long_hold_s(interval_s, None)
    begins = [hold.from_ns for hold in holds]
    waiters = {wait.thread for wait in waits}
    asked_ns: dict[int, int] = {}
    for request in timeline.drop_requests:
        place = bisect_right(begins, request.at_ns) - 1
        if place >= 0 and request.waiter in waiters and request.at_ns <= holds[place].to_ns:
            asked_ns.setdefault(place, request.at_ns)
    kept = {}
    for place, ns in asked_ns.items():
        after = replace(holds[place], from_ns=ns)
        kept[place] = _length_s(after) - _common_ns([after], collections) / NS
    long = [holds[place] for place, length_s in kept.items() if length_s >= limit_s]
    in_long = [_common(wait, hold) for wait in waits for hold in long]
    waited_ns = _common_ns(waits, long) - _common_ns(
        [each for each in in_long if each], collections
    )
    return max(kept.values(), default=0.0), waited_ns / NS


def _common(one: Span, other: Span) -> Span | None:
    """The part of a span in which another one is."""
    from_ns, to_ns = max(one.from_ns, other.from_ns), min(one.to_ns, other.to_ns)
    return replace(one, from_ns=from_ns, to_ns=to_ns) if from_ns < to_ns else None


def _common_ns(spans: list[Span], others: list[Span]) -> int:
    """The sum of the times that a span of the one list has in common with one of the other. Spans
    of the other list do not overlap; a binary search finds them."""
    others = sorted(others, key=lambda span: span.from_ns)
    begins = [other.from_ns for other in others]
    total_ns = 0
    for span in spans:
        first = max(0, bisect_right(begins, span.from_ns) - 1)
        for other in others[first : bisect_right(begins, span.to_ns)]:
            if common := _common(span, other):
                total_ns += common.to_ns - common.from_ns
    return total_ns


def _length_s(span: Span) -> float:
    return (span.to_ns - span.from_ns) / NS


def _typical_s(spans: list[Span], thread: int) -> float:
    return median([_length_s(span) for span in spans if span.thread == thread] or [0.0])
