"""Describes one wait of a timeline step by step: wait, drop request, drop and take. Pure.

Each sentence describes events that the timeline contains; a step that it does not contain has no
sentence. If the timeline contains no complete wait, the steps show how another thread drops the GIL
and takes it back during a wait.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from headway.report import columns, units
from headway.trace.handoffs import passes
from headway.trace.timeline import FORCED, HOLD, WAIT, DropRequest, Span, Timeline
from headway.trace.window import TimelineWindow, complete, cut

# The wait with the most steps is chosen among this many waits.
LOOKED_AT = 20
# The smallest magnification that is worth a panel of its own, and the margin on each side as a
# share of the part.
MAGNIFIED, AROUND = 8, 0.18
AT_ONCE_NS = 1_000
WORDS = ("never", "once", "twice")


class Step(NamedTuple):
    """One step. `thread` is the index in `Timeline.threads` of the thread that acts."""

    at_ns: int
    thread: int
    text: str


def episode(shown: TimelineWindow) -> list[Step]:
    """Returns the steps of one wait of the window's delayed thread, or an empty list if there is
    no such wait."""
    timeline, delayed = shown.timeline, shown.delayed
    if delayed is None:
        return []
    waits = complete(timeline, WAIT, delayed)[:LOOKED_AT]
    gil = timeline.threads[delayed].gil
    holds = [
        span
        for span in timeline.spans
        if span.kind == HOLD and timeline.threads[span.thread].gil == gil
    ]
    holds.sort(key=lambda span: span.from_ns)
    asked = sorted(
        (each for each in timeline.drop_requests if timeline.threads[each.waiter].gil == gil),
        key=lambda each: each.at_ns,
    )
    told = [_tell(timeline, wait, holds, asked, later=wait is not waits[-1]) for wait in waits]
    # Among equals, prefer the wait in which the waiting thread itself sends the drop request.
    best = max(told, key=lambda steps: (len(steps), _own(steps)), default=[])
    return best or _in_vain(timeline, delayed)


def _own(steps: Sequence[Step]) -> int:
    return sum(step.thread == steps[0].thread for step in steps)


def _tell(
    timeline: Timeline,
    wait: Span,
    holds: Sequence[Span],
    asked: Sequence[DropRequest],
    *,
    later: bool,
) -> list[Step]:
    """The steps of `wait`. `holds` and `asked` are all holds and drop requests of the GIL, in
    order of time. `later` is true if the thread waits again afterwards."""
    waiter = name_of(timeline, wait.thread)
    first = bisect_left(holds, wait.from_ns, key=lambda span: span.to_ns)
    then = bisect_left(holds, wait.to_ns, key=lambda span: span.from_ns)
    before, since = holds[first:then], holds[then:]
    holder = ""
    if before and before[0].from_ns <= wait.from_ns:
        holder = f": {name_of(timeline, before[0].thread)} holds it"
    steps = [Step(wait.from_ns, wait.thread, f"{waiter} wants the GIL, and waits{holder}.")]
    last_ns = wait.from_ns
    if before:
        request = _answered(wait, before[-1], asked)
        if request:
            passed = sum(span.from_ns > wait.from_ns for span in before)
            steps.append(_asking(timeline, wait, request, passed))
        steps.append(_drop(timeline, before[-1], request))
        last_ns = before[-1].to_ns
    if not since or since[0].thread != wait.thread or since[0].from_ns > wait.to_ns:
        return steps
    text = f"{time(wait.to_ns - last_ns)} later {waiter} has it."
    steps.append(Step(wait.to_ns, wait.thread, text))
    return steps + _after(timeline, wait, since, later=later)


def _answered(wait: Span, hold: Span, asked: Sequence[DropRequest]) -> DropRequest | None:
    """The drop request that ended a hold; the waiting thread's own request comes first."""
    begin_ns = max(wait.from_ns, hold.from_ns)
    first = bisect_left(asked, begin_ns, key=lambda each: each.at_ns)
    last = bisect_left(asked, hold.to_ns + 1, key=lambda each: each.at_ns)
    return min(
        (each for each in asked[first:last] if each.holder in (hold.thread, -1)),
        key=lambda each: (each.waiter != wait.thread, each.at_ns),
        default=None,
    )


def _in_vain(timeline: Timeline, thread: int) -> list[Step]:
    """How another thread drops the GIL and takes it back, twice, in the middle of a wait."""
    waits = [span for span in timeline.spans if span.kind == WAIT and span.thread == thread]
    if not waits:
        return []
    wait = max(waits, key=lambda span: span.to_ns - span.from_ns)
    gil = timeline.threads[thread].gil
    missed = [
        each
        for each in passes(timeline)
        if each.dropper == each.taker != thread
        and timeline.threads[each.taker].gil == gil
        and wait.from_ns <= each.from_ns <= each.to_ns <= wait.to_ns
    ]
    if not missed:
        return []
    middle = len(missed) // 2
    waiter = name_of(timeline, thread)
    steps = [Step(wait.from_ns, thread, f"{waiter} waits for the GIL.")]
    for again, each in zip(("", " again"), missed[middle : middle + 2], strict=False):
        after = f"{time(each.from_ns - steps[-1].at_ns)} later " if again else ""
        name = "it" if again else name_of(timeline, each.dropper)
        steps.append(Step(each.from_ns, each.dropper, f"{after}{name} drops it{again}."))
        text = f"{time(each.to_ns - each.from_ns)} later it takes it back, before {waiter} does."
        steps.append(Step(each.to_ns, each.taker, text))
    return steps


def _asking(timeline: Timeline, wait: Span, request: DropRequest, passed: int) -> Step:
    """The step of a drop request. `passed` counts the takes by other threads since the wait
    began."""
    whom = name_of(timeline, request.holder) if request.holder >= 0 else "the holder"
    who = "it" if request.waiter == wait.thread else name_of(timeline, request.waiter)
    after_ns = request.at_ns - wait.from_ns
    intervals = after_ns / timeline.switch_interval_ns if timeline.switch_interval_ns else 0
    when = f"After {time(after_ns)}"
    if passed:
        when += f", in which others took the GIL {times(passed)},"
    elif after_ns < AT_ONCE_NS:
        when = "At once"
    elif 0.98 <= intervals <= 1.1:
        when += ", a switch interval,"
    text = f"{when} {who} asks {whom} to drop the GIL."
    return Step(request.at_ns, request.waiter, text)


def _drop(timeline: Timeline, hold: Span, request: DropRequest | None) -> Step:
    holder = name_of(timeline, hold.thread)
    if hold.how == FORCED and request:
        after = time(hold.to_ns - request.at_ns)
        text = f"{holder} notices {after} later, and drops it: a forced drop."
    elif hold.how == FORCED:
        text = f"{holder} drops it, since it was asked to: a forced drop."
    else:
        text = f"{holder} drops it unasked."
    return Step(hold.to_ns, hold.thread, text)


def _after(timeline: Timeline, wait: Span, since: Sequence[Span], *, later: bool) -> list[Step]:
    """The steps from the waiter's take until another thread takes the GIL."""
    waiter = name_of(timeline, wait.thread)
    mine = []
    for span in since:
        if span.thread != wait.thread:
            break
        mine.append(span)
    needed_ns = sum(span.to_ns - span.from_ns for span in mine)
    last = mine[-1]
    if last.to_ns >= timeline.end_ns:
        return []
    if last.how == FORCED:
        text = f"{time(needed_ns)} later it is asked to drop it, and does."
    else:
        times = "" if len(mine) == 1 else f", in {len(mine)} holds"
        text = f"It needed the GIL for {time(needed_ns)}{times}, and drops it unasked."
    steps = [Step(last.to_ns, wait.thread, text)]
    after = since[len(mine)] if len(mine) < len(since) else None
    if after is not None and after.from_ns < timeline.end_ns:
        again = f" When {waiter} wants it again, all this begins anew." if later else ""
        other = name_of(timeline, after.thread)
        text = f"{time(after.from_ns - last.to_ns)} later {other} has it.{again}"
        steps.append(Step(after.from_ns, after.thread, text))
    return steps


def magnified(timeline: Timeline, steps: Sequence[Step]) -> Timeline | None:
    """The part of the timeline around all steps but the first, whose wait is long enough to be
    visible anyway. Returns None if magnifying this part would gain too little."""
    if len(steps) < 3:
        return None
    around_ns = round(AROUND * (steps[-1].at_ns - steps[1].at_ns)) + 1
    begin_ns = max(timeline.begin_ns, steps[1].at_ns - around_ns)
    end_ns = min(timeline.end_ns, steps[-1].at_ns + around_ns)
    if (end_ns - begin_ns) * MAGNIFIED > timeline.end_ns - timeline.begin_ns:
        return None
    return cut(timeline, begin_ns, end_ns)


def name_of(timeline: Timeline, thread: int) -> str:
    """The thread's name, made printable and cut to the usual length."""
    return columns.name(timeline.threads[thread].name) or f"thread {thread}"


def times(count: int) -> str:
    return WORDS[count] if 0 < count < len(WORDS) else f"{count:,} times"


def time(ns: float) -> str:
    return f"{round(ns)} ns" if 0 < ns < 1000 else units.seconds(ns / 1e9)
