"""Describes a timeline in two or three sentences, each with the figures that it comes from. Pure.

It names the thread that is delayed most, the threads that hold the GIL meanwhile, and what
`headway.report.diagnosis` finds in their waits and holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headway.report import columns, diagnosis, units
from headway.trace.contention import contention_of
from headway.trace.handoffs import passes
from headway.trace.timeline import FORCED, HOLD, UNFINISHED, WAIT, Span, Timeline
from headway.trace.walk_through import name_of, time, times
from headway.trace.window import TimelineWindow, complete, sums

UNIT = r"(?<=\d) (?=(?:%|s|ms|ns|µs)(?:\W|$))"


def heading(shown: TimelineWindow) -> str:
    """The length of the window, that of the whole timeline, and the switch interval."""
    timeline = shown.timeline
    facts = [time(timeline.end_ns - timeline.begin_ns)]
    if not shown.is_whole:
        whole = time(shown.whole.end_ns - shown.whole.begin_ns)
        facts = [f"{facts[0]} out of {whole}; 0 is {time(shown.after_ns)} after the begin"]
    if timeline.switch_interval_ns:
        facts.append(f"switch interval {time(timeline.switch_interval_ns)}")
    return ", ".join(facts)


def sentences(shown: TimelineWindow) -> list[str]:
    timeline = shown.timeline
    if not any(thread.gil for thread in timeline.threads):
        return ["No thread has a GIL, so none waits for one."]
    delayed = shown.delayed
    if delayed is None:
        takes = sum(span.kind == HOLD for span in timeline.spans)
        return [f"Nobody waited: {units.number(takes, 'hold')} began with a free GIL."]
    waits = _lengths(timeline, delayed)
    told = [_waiting(timeline, delayed, waits), *_holding(timeline, delayed)]
    told += _finding(shown, delayed, waits)
    if not shown.is_whole:
        told.append(_whole(shown.whole, delayed))
    return told


def _lengths(timeline: Timeline, thread: int) -> list[int]:
    """The lengths of the thread's complete waits, in nanoseconds."""
    return [span.to_ns - span.from_ns for span in complete(timeline, WAIT, thread)]


def _spans(timeline: Timeline, kind: str, thread: int) -> list[Span]:
    return [span for span in timeline.spans if span.kind == kind and span.thread == thread]


def _waiting(timeline: Timeline, thread: int, waits: Sequence[int]) -> str:
    lasts_ns = timeline.end_ns - timeline.begin_ns
    name, held_ns = name_of(timeline, thread), sums(timeline, HOLD).get(thread, 0)
    held = f"it held the GIL for {share(held_ns, lasts_ns)} of the time"
    if not held_ns:
        held = "it never held the GIL"
    if not waits:
        waited_ns = sums(timeline, WAIT).get(thread, 0)
        return f"{name} waited for {time(waited_ns)}, longer than is seen here; {held}."
    mean = time(sum(waits) / len(waits))
    each = _in_intervals(timeline.switch_interval_ns, waits)
    how_long = mean if len(waits) == 1 else f"{mean} on average"
    return f"{name} waited {times(len(waits))}, {how_long}{each}; {held}."


def _in_intervals(interval_ns: int, waits: Sequence[int]) -> str:
    if not interval_ns:
        return ""
    least, most = (round(limit / interval_ns) for limit in (min(waits), max(waits)))
    suffix = " each" if len(waits) > 1 else ""
    if max(waits) < interval_ns / 10:
        return f", far less than a switch interval ({time(interval_ns)})"
    # The mean may exceed whole intervals by the time that the handoff after a request takes.
    over = (min(waits) / interval_ns - most, sum(waits) / len(waits) / interval_ns - most)
    if least == most and over[0] >= -0.05 and over[1] <= 0.3:
        return f", {units.number(most, 'switch interval').replace('1 ', 'one ', 1)}{suffix}"
    if max(waits) > 1.5 * interval_ns:
        return f", up to {max(waits) / interval_ns:.1f} switch intervals"
    return ""


def _holding(timeline: Timeline, delayed: int) -> list[str]:
    """Names the threads that held the GIL meanwhile, and why they dropped it."""
    gil = timeline.threads[delayed].gil
    held = {
        place: ns
        for place, ns in sums(timeline, HOLD).items()
        if place != delayed and timeline.threads[place].gil == gil
    }
    if not held:
        return []
    lasts_ns = timeline.end_ns - timeline.begin_ns
    if len(held) > 1:
        others = sum(thread.gil == gil for thread in timeline.threads) - 1
        who = f"The other {others}" if len(held) == others else f"{len(held)} of the other {others}"
        drops = [_drops(timeline, place) for place in held]
        forced, all_drops = (sum(each) for each in zip(*drops, strict=True))
        return [
            f"{who} held it for {share(sum(held.values()), lasts_ns)}"
            f"{_dropped(forced, all_drops, 'they were asked to')}."
        ]
    (place,) = held
    dropped = _dropped(*_drops(timeline, place), "it was asked to")
    return [f"{name_of(timeline, place)} held it for {share(held[place], lasts_ns)}{dropped}."]


def _drops(timeline: Timeline, thread: int) -> tuple[int, int]:
    """The number of forced drops and the number of all drops."""
    hows = [span.how for span in _spans(timeline, HOLD, thread) if span.how != UNFINISHED]
    return hows.count(FORCED), len(hows)


def _dropped(forced: int, drops: int, asked: str) -> str:
    if not drops:
        return " and never dropped it"
    every = {1: "", 2: "both times "}.get(drops, "each time ")
    if forced == drops:
        return f" and dropped it {times(drops)}, {every}because {asked}"
    if not forced:
        return f" and dropped it {times(drops)}, {every}unasked"
    return f" and dropped it {times(drops)}, {forced:,} of them because {asked}"


def _finding(shown: TimelineWindow, delayed: int, waits: Sequence[int]) -> list[str]:
    """The diagnosis of the whole timeline, with the figures of the window."""
    timeline = shown.timeline
    name = name_of(timeline, delayed)
    back = _taken_back(timeline, delayed)
    told = [back] if back else []
    contention = contention_of(shown.whole, delayed)
    finding = diagnosis.finding(contention)
    if finding == diagnosis.LONG_HOLD:
        told.append(
            f"These are long holds: the GIL was kept for up to {units.seconds(contention.kept_s)} "
            "after a request to drop it."
        )
    elif finding == diagnosis.COLLECTION:
        longest = units.seconds(contention.longest_collection_s)
        told.append(
            "This is garbage collection, which no policy can preempt: "
            f"{100 * contention.collection_share:.0f} % of the waiting is for it, and it took up "
            f"to {longest} at a time."
        )
    elif finding == diagnosis.CONVOY and waits:
        mean_ns = sum(waits) / len(waits)
        needed_ns = max(1, sums(timeline, HOLD).get(delayed, 0)) / len(waits)
        told.append(
            f"This is the convoy: to have the GIL for {time(needed_ns)}, {name} waits "
            f"{mean_ns / needed_ns:,.0f} times as long."
        )
    elif finding == diagnosis.GIL_BOUND:
        told.append("The GIL limits what gets done.")
    return told


def _taken_back(timeline: Timeline, delayed: int) -> str:
    """How often another thread dropped the GIL and took it back while `delayed` waited."""
    gil, waits = timeline.threads[delayed].gil, _spans(timeline, WAIT, delayed)
    back = [
        each
        for each in passes(timeline)
        if each.dropper == each.taker != delayed and timeline.threads[each.taker].gil == gil
    ]
    place, missed = 0, 0
    takers = set()
    for each in back:
        while place < len(waits) and waits[place].to_ns <= each.from_ns:
            place += 1
        if place < len(waits) and waits[place].from_ns <= each.from_ns:
            missed += 1
            takers.add(each.taker)
    if not missed:
        return ""
    who = name_of(timeline, takers.pop()) if len(takers) == 1 else "another thread"
    return (
        f"While {name_of(timeline, delayed)} waited, {who} dropped the GIL {times(missed)} "
        "and took it back itself."
    )


def _whole(timeline: Timeline, delayed: int) -> str:
    """The figures of the whole timeline, to show that the window is representative."""
    waits = _lengths(timeline, delayed)
    lasts = time(timeline.end_ns - timeline.begin_ns)
    mean = time(sum(waits) / len(waits))
    name = name_of(timeline, delayed)
    return f"In all {lasts} {name} waited {times(len(waits))}, {mean} on average."


def paragraph(said: str, width: int) -> list[str]:
    """Wraps text to lines of at most `width` columns. A number and its unit stay on one line."""
    lines: list[str] = []
    for word in re.sub(UNIT, "\N{NO-BREAK SPACE}", said).split(" "):
        word = columns.cut(word, width)
        if not lines or columns.width(lines[-1]) + 1 + columns.width(word) > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return [line.replace("\N{NO-BREAK SPACE}", " ").rstrip() for line in lines if line]


def share(part: float, whole: float) -> str:
    """`part` in percent of `whole`. A small part other than 0 is not shown as 0."""
    return "less than 0.1 %" if 0 < part < whole / 2000 else units.share(part, whole)
