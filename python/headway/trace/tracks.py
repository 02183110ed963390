"""A timeline as lanes of a drawing, one for each thread, at a resolution. Pure.

What is wider than the least that can be seen is drawn as it is. A single narrower span is drawn as
wide as that least; several beside each other become one smear that knows of each of its columns
which share was held, and which waited, so that no drawing makes more of them than there is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.trace.timeline import FORCED_WAIT, HOLD, REQUEST, RUNNING, WAIT, Span, Timeline
from headway.trace.window import sums

# A thread is in one of these at a time; the others go on beside.
STATES = (HOLD, WAIT, FORCED_WAIT)


@dataclass(slots=True)
class Lane:
    """`thread` is a place in `Timeline.threads`, `states` are spans of STATES, in order."""

    thread: int
    states: list[Span] = field(default_factory=list)
    requests: list[Span] = field(default_factory=list)
    running: list[Span] = field(default_factory=list)


def lanes(timeline: Timeline, most: int, wanted: Collection[int] = ()) -> tuple[list[Lane], int]:
    """The lanes of `wanted` threads and of those that held and waited longest, in the timeline's
    order, threads of one GIL together; and how many others have been left out. A thread of which
    nothing was seen has none."""
    busy_ns: dict[int, int] = {}
    for kind in (HOLD, WAIT, REQUEST, RUNNING):
        for thread, ns in sums(timeline, kind).items():
            # A hold of no time counts too.
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
    """One or more spans as they are drawn, in columns from the left. Where there are several,
    `shares` has for each column from the first on which share of it is each of STATES; `widened`
    is what is drawn wider than it is."""

    left: float
    right: float
    spans: Sequence[Span]
    shares: Sequence[tuple[float, float, float]] = ()
    widened: bool = False

    @property
    def kind(self) -> str:
        """A hold, if there is one; else what it is most of the time."""
        if any(span.kind == HOLD for span in self.spans):
            return HOLD
        return max(self.spans, key=lambda span: span.to_ns - span.from_ns).kind


def bars(spans: Sequence[Span], begin_ns: int, column_ns: float, least: float) -> list[Bar]:
    """`spans` of one lane, in order, as bars of at least so many columns. `column_ns` is the time
    of one column."""
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
    """Of each of `columns` from `begin_ns` on, which share is in each of STATES."""
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
