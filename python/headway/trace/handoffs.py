"""Finds the handoffs of GILs between threads in a timeline. Pure."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from headway.trace.timeline import HOLD, WAIT, Span, Timeline


class Pass(NamedTuple):
    """A handoff: the time from a drop to the next take while a thread waits. `dropper` and `taker`
    are indexes in `Timeline.threads`. They are equal if the thread took the GIL back before the
    waiter could."""

    from_ns: int
    to_ns: int
    dropper: int
    taker: int


def passes(timeline: Timeline) -> list[Pass]:
    """The handoffs of all GILs, in order of time."""
    found: list[Pass] = []
    for gil, holds in of_gils(timeline, HOLD).items():
        waits = of_gils(timeline, WAIT).get(gil, [])
        begun = sorted(wait.from_ns for wait in waits)
        over = sorted(wait.to_ns for wait in waits)
        for before, after in pairwise(holds):
            drop_ns = before.to_ns
            if bisect_right(begun, drop_ns) > bisect_right(over, drop_ns):
                found.append(Pass(drop_ns, after.from_ns, before.thread, after.thread))
    return sorted(found)


def of_gils(timeline: Timeline, kind: str) -> dict[str, list[Span]]:
    """The spans of one kind by the name of their GIL, in order of time. Spans of threads without a
    GIL are left out."""
    found: dict[str, list[Span]] = {}
    for span in timeline.spans:
        gil = timeline.threads[span.thread].gil
        if gil and span.kind == kind:
            found.setdefault(gil, []).append(span)
    for spans in found.values():
        spans.sort(key=lambda span: (span.from_ns, span.to_ns))
    return found
