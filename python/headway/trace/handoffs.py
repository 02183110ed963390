"""How GILs passed from thread to thread, as a timeline shows it. Pure."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from headway.trace.timeline import HOLD, WAIT, Span, Timeline


class Pass(NamedTuple):
    """From a drop to the next take, while somebody waited: what the books call a handoff. The
    dropper and the taker, places in `Timeline.threads`, may be the same thread, which then has
    taken the GIL back before the waiter was there."""

    from_ns: int
    to_ns: int
    dropper: int
    taker: int


def passes(timeline: Timeline) -> list[Pass]:
    """In order, those of all GILs."""
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
    """By the names of GILs, the spans of one kind, in order; not those of threads without one."""
    found: dict[str, list[Span]] = {}
    for span in timeline.spans:
        gil = timeline.threads[span.thread].gil
        if gil and span.kind == kind:
            found.setdefault(gil, []).append(span)
    for spans in found.values():
        spans.sort(key=lambda span: (span.from_ns, span.to_ns))
    return found
