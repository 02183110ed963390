"""One wait of a timeline told step by step: who waits, asks, drops and takes, and when. Pure.

What a sentence says has been seen; a step that was not seen has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway import columns, units
from headway.timeline.excerpt import complete, cut, most_delayed
from headway.timeline.timeline import FORCED, HOLD, WAIT, DropRequest, Span, Timeline

# Of so many waits the one is told in which most happens.
LOOKED_AT = 50
# A part is magnified if it becomes so many times as wide; around it is this share of it.
MAGNIFIED, AROUND = 8, 0.18
WORDS = ("never", "once", "twice")


class Step(NamedTuple):
    """`thread`, a place in `Timeline.threads`, does it."""

    at_ns: int
    thread: int
    text: str


def episode(timeline: Timeline) -> list[Step]:
    """The steps of a wait of the thread that is delayed most; none if it has no whole wait."""
    delayed = most_delayed(timeline)
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
    told = [_tell(timeline, wait, holds, later=wait is not waits[-1]) for wait in waits]
    return max(told, key=len, default=[])


def _tell(timeline: Timeline, wait: Span, holds: Sequence[Span], *, later: bool) -> list[Step]:
    waiter = name_of(timeline, wait.thread)
    before = [span for span in holds if span.from_ns < wait.to_ns and span.thread != wait.thread]
    since = [span for span in holds if span.from_ns >= wait.to_ns]
    holder = next((span for span in before if span.to_ns > wait.from_ns), None)
    held = f": {name_of(timeline, holder.thread)} holds it" if holder else ""
    steps = [Step(wait.from_ns, wait.thread, f"{waiter} wants the GIL, and waits{held}.")]
    asked = [
        each
        for each in timeline.drop_requests
        if each.waiter == wait.thread and wait.from_ns <= each.at_ns <= wait.to_ns
    ]
    last_ns = wait.from_ns
    if asked:
        passed = sum(wait.from_ns < span.from_ns <= asked[-1].at_ns for span in before)
        steps.append(_asking(timeline, wait, asked, passed))
        last_ns = asked[-1].at_ns
    if before and last_ns <= before[-1].to_ns <= wait.to_ns:
        steps.append(_drop(timeline, before[-1], last_ns if asked else None))
        last_ns = before[-1].to_ns
    if not since or since[0].thread != wait.thread or since[0].from_ns > wait.to_ns:
        return steps
    steps.append(
        Step(wait.to_ns, wait.thread, f"{time(wait.to_ns - last_ns)} later {waiter} has it.")
    )
    return steps + _after(timeline, wait, since, later=later)


def _asking(timeline: Timeline, wait: Span, asked: Sequence[DropRequest], passed: int) -> Step:
    """The last drop request, which is what was answered; `passed` is how many holds others began
    meanwhile."""
    request = asked[-1]
    whom = name_of(timeline, request.holder) if request.holder >= 0 else "the holder"
    after_ns = request.at_ns - wait.from_ns
    meanwhile = ""
    if passed:
        meanwhile = f", in which others took the GIL {times(passed)},"
    elif timeline.switch_interval_ns and len(asked) == 1:
        intervals = after_ns / timeline.switch_interval_ns
        meanwhile = ", a switch interval," if 0.98 <= intervals <= 1.1 else ""
    again = " once more" if len(asked) > 1 else ""
    text = f"After {time(after_ns)}{meanwhile} it asks {whom}{again} to drop the GIL."
    return Step(request.at_ns, wait.thread, text)


def _drop(timeline: Timeline, hold: Span, asked_ns: int | None) -> Step:
    holder = name_of(timeline, hold.thread)
    if hold.how == FORCED and asked_ns is not None:
        text = f"{holder} notices {time(hold.to_ns - asked_ns)} later, and drops it: a forced drop."
    elif hold.how == FORCED:
        text = f"{holder} drops it, since it was asked to: a forced drop."
    else:
        text = f"{holder} drops it of its own accord."
    return Step(hold.to_ns, hold.thread, text)


def _after(timeline: Timeline, wait: Span, since: Sequence[Span], *, later: bool) -> list[Step]:
    """What the waiter makes of the GIL that it waited for, until another has it."""
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
        text = f"It needed the GIL for {time(needed_ns)}{times}, and drops it of its own accord."
    steps = [Step(last.to_ns, wait.thread, text)]
    after = since[len(mine)] if len(mine) < len(since) else None
    if after is not None and after.from_ns < timeline.end_ns:
        again = f" When {waiter} wants it again, all this begins anew." if later else ""
        other = name_of(timeline, after.thread)
        text = f"{time(after.from_ns - last.to_ns)} later {other} has it.{again}"
        steps.append(Step(after.from_ns, after.thread, text))
    return steps


def magnified(timeline: Timeline, steps: Sequence[Step]) -> Timeline | None:
    """What is around the steps after the first, which takes long enough to be seen; None if they
    can be seen as well as it can."""
    if len(steps) < 3:
        return None
    around_ns = round(AROUND * (steps[-1].at_ns - steps[1].at_ns)) + 1
    begin_ns = max(timeline.begin_ns, steps[1].at_ns - around_ns)
    end_ns = min(timeline.end_ns, steps[-1].at_ns + around_ns)
    if (end_ns - begin_ns) * MAGNIFIED > timeline.end_ns - timeline.begin_ns:
        return None
    return cut(timeline, begin_ns, end_ns)


def name_of(timeline: Timeline, thread: int) -> str:
    """Printable, and not too long."""
    return columns.name(timeline.threads[thread].name) or f"thread {thread}"


def times(count: int) -> str:
    return WORDS[count] if 0 < count < len(WORDS) else f"{count:,} times"


def time(ns: float) -> str:
    return f"{round(ns)} ns" if 0 < ns < 1000 else units.seconds(ns / 1e9)
