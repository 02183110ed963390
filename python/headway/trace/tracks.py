"""Turns a timeline into lanes of a drawing, one for each thread, at a given resolution. Pure.

A span of at least the smallest visible width is drawn to scale. A single narrower span is widened
to that width. Several narrow spans next to each other become one smear, which has the shares of
time held and waited for each of its columns, so that a drawing does not exaggerate them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.trace.timeline import FORCED_WAIT, HOLD, REQUEST, RUNNING, WAIT, Span, Timeline
from headway.trace.window import sums

# A thread is in at most one of these states at a time; the other kinds overlap them.
STATES = (HOLD, WAIT, FORCED_WAIT)


@dataclass(slots=True)
class Lane:
    """The spans of one thread. `thread` is an index in `Timeline.threads`; `states` are spans of
    STATES, in order of time."""

    thread: int
    states: list[Span] = field(default_factory=list)
    requests: list[Span] = field(default_factory=list)
    running: list[Span] = field(default_factory=list)


def lanes(timeline: Timeline, most: int, wanted: Collection[int] = ()) -> tuple[list[Lane], int]:
    """Returns at most `most` lanes and the number of threads left out. The lanes are those of the
    `wanted` threads and of the threads that held and waited longest, in the timeline's order, with
    the threads of one GIL together. A thread without spans has no lane."""
    busy_ns: dict[int, int] = {}
    for kind in (HOLD, WAIT, REQUEST, RUNNING):
        for thread, ns in sums(timeline, kind).items():
            # Starting at 1, a thread whose spans all have length 0 counts too.
            busy_ns[thread] = busy_ns.get(thread, 1) + (ns if kind in STATES else 0)
    ranked = sorted(busy_ns, key=lambda thread: (thread not in wanted, -busy_ns[thread], thread))
    gils = [thread.gil for thread in timeline.threads]
    chosen = sorted(ranked[:most], key=lambda thread: (gils.index(gils[thread]), thread))
    found = {thread: Lane(thread) for thread in chosen}
    for span in timeline.spans:
        lane = found.get(span.thread)
        if lane is None:
            continue
        if span.kind in STATES:
            lane.states.append(span)
        elif span.kind == REQUEST:
            lane.requests.append(span)
        elif span.kind == RUNNING:
            lane.running.append(span)
    for lane in found.values():
        lane.states.sort(key=lambda span: (span.from_ns, span.to_ns))
    return list(found.values()), len(ranked) - len(chosen)


class Bar(NamedTuple):
    """One or more spans as they are drawn, in columns from the left. For a smear, `shares` has for
    each of its columns the share of each of STATES; `widened` is true if the bar is wider than its
    spans."""

    left: float
    right: float
    spans: Sequence[Span]
    shares: Sequence[tuple[float, float, float]] = ()
    widened: bool = False

    @property
    def kind(self) -> str:
        """HOLD if any span is a hold, else the kind of the longest span."""
        if any(span.kind == HOLD for span in self.spans):
            return HOLD
        return max(self.spans, key=lambda span: span.to_ns - span.from_ns).kind


def bars(spans: Sequence[Span], begin_ns: int, column_ns: float, least: float) -> list[Bar]:
    """Turns the `spans` of one lane, in order, into bars that are at least `least` columns wide.
    `column_ns` is the time of one column."""
    drawn: list[Bar] = []
    narrow: list[Span] = []

    def end_cluster() -> None:
        if narrow:
            drawn.append(_cluster(tuple(narrow), begin_ns, column_ns, least))
            narrow.clear()

    for span in spans:
        if (span.to_ns - span.from_ns) >= least * column_ns:
            end_cluster()
            left, right = ((at - begin_ns) / column_ns for at in (span.from_ns, span.to_ns))
            drawn.append(Bar(left, right, (span,)))
            continue
        if narrow and span.from_ns - narrow[-1].to_ns >= least * column_ns:
            end_cluster()
        narrow.append(span)
    end_cluster()
    return drawn


def _cluster(spans: Sequence[Span], begin_ns: int, column_ns: float, least: float) -> Bar:
    left = (spans[0].from_ns - begin_ns) / column_ns
    right = (spans[-1].to_ns - begin_ns) / column_ns
    if right - left <= 2 * least:
        middle = (left + right) / 2
        half = max(least, right - left) / 2
        return Bar(middle - half, middle + half, spans, widened=True)
    first, last = int(left), int(right) + 1
    return Bar(
        first, last, spans, shares(spans, begin_ns + first * column_ns, column_ns, last - first)
    )


def shares(
    spans: Sequence[Span], begin_ns: float, column_ns: float, columns: int
) -> list[tuple[float, float, float]]:
    """Returns the share of each of STATES, for each of `columns` columns from `begin_ns` on."""
    found = [[0.0] * len(STATES) for _ in range(columns)]
    for span in spans:
        state = STATES.index(span.kind)
        left = max(0.0, (span.from_ns - begin_ns) / column_ns)
        right = min(float(columns), (span.to_ns - begin_ns) / column_ns)
        for column in range(int(left), min(columns, int(right) + 1)):
            part = min(right, column + 1) - max(left, column)
            if part > 0:
                found[column][state] += part
    return [(held, waited, forced) for held, waited, forced in found]
