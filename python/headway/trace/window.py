"""Chooses a representative window of a timeline.

A second of a convoy is hundreds of waits that all look alike: drawn whole it is a smear. A few
waits of the thread that waits longest relative to its holds show the same. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from headway.trace.timeline import HOLD, UNFINISHED, WAIT, Span, Timeline

# The smallest number of waits in a window; a window is also at least a switch interval long.
WAITS = 4
# The margin before and after the waits, as a share of their length, so that the hold before the
# first wait is visible.
LEAD = 0.03
# A thread that waited for less than this share of the longest sum of waits is not considered.
MATTERS = 0.1


class TimelineWindow(NamedTuple):
    """A part of the timeline `whole`, or all of it. `zero_ns` is the zero of the time axis,
    `after_ns` the time from the begin of `whole` to that zero, and `delayed` the thread that the
    window is about; None if no thread waited."""

    timeline: Timeline
    zero_ns: int
    after_ns: int
    whole: Timeline
    delayed: int | None

    @property
    def is_whole(self) -> bool:
        return self.timeline is self.whole


def all_of(timeline: Timeline) -> TimelineWindow:
    return TimelineWindow(timeline, timeline.begin_ns, 0, timeline, most_delayed(timeline))


def telling(timeline: Timeline) -> TimelineWindow:
    """The stretch of WAITS waits of the most delayed thread whose length is closest to the median
    of all such stretches. Returns the whole timeline if it has few waits."""
    delayed = most_delayed(timeline)
    waits = [] if delayed is None else complete(timeline, WAIT, delayed)
    if len(waits) <= 2 * WAITS:
        return all_of(timeline)
    # A stretch ends at the begin of the next wait, to show that the waits follow each other.
    stretches = [
        (after.from_ns - first.from_ns, first)
        for first, after in zip(waits, waits[WAITS:], strict=False)
    ]
    lengths = sorted(length for length, _ in stretches)
    median_ns = lengths[len(lengths) // 2]
    lasts_ns, first = min(stretches, key=lambda each: (abs(each[0] - median_ns), each[1].from_ns))
    lasts_ns = max(lasts_ns, timeline.switch_interval_ns)
    lead_ns = round(LEAD * lasts_ns)
    begin_ns = max(timeline.begin_ns, first.from_ns - lead_ns)
    end_ns = min(timeline.end_ns, first.from_ns + lasts_ns + lead_ns)
    part = cut(timeline, begin_ns, end_ns)
    return TimelineWindow(part, first.from_ns, first.from_ns - timeline.begin_ns, timeline, delayed)


def cut(timeline: Timeline, begin_ns: int, end_ns: int) -> Timeline:
    """The part of a timeline between two times. A hold that crosses the end is unfinished."""
    spans = [
        replace(
            span,
            from_ns=max(span.from_ns, begin_ns),
            to_ns=min(span.to_ns, end_ns),
            how=span.how if span.to_ns <= end_ns else UNFINISHED,
        )
        for span in timeline.spans
        if span.to_ns > begin_ns and span.from_ns < end_ns
    ]
    requests = [each for each in timeline.drop_requests if begin_ns <= each.at_ns <= end_ns]
    return replace(timeline, begin_ns=begin_ns, end_ns=end_ns, spans=spans, drop_requests=requests)


def most_delayed(timeline: Timeline) -> int | None:
    """The thread with the largest ratio of time waited to time held, among the threads that waited
    long, as an index in `Timeline.threads`. None if no thread waited."""
    waited_ns, held_ns = (sums(timeline, kind) for kind in (WAIT, HOLD))
    most_ns = max(waited_ns.values(), default=0)
    long = [place for place, ns in waited_ns.items() if ns and ns >= MATTERS * most_ns]
    return max(
        long,
        key=lambda place: (waited_ns[place] / max(1, held_ns.get(place, 0)), -place),
        default=None,
    )


def sums(timeline: Timeline, kind: str) -> dict[int, int]:
    """The total length of the spans of one kind, by thread, in nanoseconds."""
    found: dict[int, int] = {}
    for span in timeline.spans:
        if span.kind == kind:
            found[span.thread] = found.get(span.thread, 0) + span.to_ns - span.from_ns
    return found


def complete(timeline: Timeline, kind: str, thread: int) -> list[Span]:
    """The spans of one kind of a thread that lie wholly within the timeline, in order."""
    return [
        span
        for span in timeline.spans
        if span.kind == kind
        and span.thread == thread
        and timeline.begin_ns < span.from_ns
        and span.to_ns < timeline.end_ns
    ]
