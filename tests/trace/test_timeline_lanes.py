"""The shown part of a timeline: windows, lanes, bars at a resolution, the GIL's ways, and axes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from made_timelines import INTERVAL_NS, MS, US, convoy, quick

from headway.trace import axis, tracks, window
from headway.trace.handoffs import passes
from headway.trace.timeline import (
    FORCED,
    FORCED_WAIT,
    HOLD,
    REQUEST,
    UNFINISHED,
    VOLUNTARY,
    WAIT,
    DropRequest,
    Span,
    Timeline,
    TimelineThread,
)


def timeline(*spans: Span, threads: int = 2, end_ns: int = 1000) -> Timeline:
    named = [TimelineThread(f"t{place}", "main") for place in range(threads)]
    return Timeline("made", named, end_ns, spans=list(spans))


def test_a_short_timeline_is_shown_whole() -> None:
    made = convoy(8)
    shown = window.telling(made)
    assert shown.is_whole
    assert shown.zero_ns == made.begin_ns


def test_of_a_long_timeline_some_waits_are_shown_and_zero_is_where_the_first_begins() -> None:
    made = convoy(100)
    shown = window.telling(made)
    assert not shown.is_whole
    waits = window.complete(shown.timeline, WAIT, 1)
    assert len(waits) == window.WAITS
    assert waits[0].from_ns == shown.zero_ns > shown.timeline.begin_ns
    assert shown.after_ns == shown.zero_ns - made.begin_ns
    # Spans that are cut there go on: no thread dropped the GIL at the end of the window.
    last = [span for span in shown.timeline.spans if span.to_ns == shown.timeline.end_ns]
    assert [span.how for span in last if span.kind == HOLD] == [UNFINISHED]


def test_short_waits_are_shown_for_a_switch_interval() -> None:
    shown = window.telling(quick(1000))
    lasts_ns = shown.timeline.end_ns - shown.timeline.begin_ns
    assert INTERVAL_NS < lasts_ns < 1.2 * INTERVAL_NS


def test_an_odd_stretch_is_not_what_is_shown() -> None:
    made = convoy(60)
    # One wait takes ten times as long as any other.
    far = [span for span in made.spans if span.from_ns > 50 * MS]
    odd = next(span for span in far if span.kind == WAIT and span.thread == 1)
    late = 50 * MS
    made.spans = [
        Span(
            span.kind,
            span.thread,
            span.from_ns + late * (span.from_ns > odd.from_ns),
            span.to_ns + late * (span.to_ns > odd.from_ns),
            span.how,
        )
        for span in made.spans
    ]
    made.end_ns += late
    shown = window.telling(made)
    lengths = [span.to_ns - span.from_ns for span in window.complete(shown.timeline, WAIT, 1)]
    assert max(lengths) < 6 * MS


def test_most_delayed_is_who_waits_longest_for_what_it_holds() -> None:
    # Each of three computing threads waits longer than echo in all, and holds the GIL in between.
    made = convoy(20, cpu_threads=3)
    waited_ns = window.sums(made, WAIT)
    assert window.most_delayed(made) == 3
    assert waited_ns[3] < 2 * waited_ns[0]
    assert window.most_delayed(timeline(Span(HOLD, 0, 0, 1000))) is None


def test_a_handoff_is_from_a_drop_to_the_next_take_while_somebody_waits() -> None:
    made = timeline(
        Span(HOLD, 0, 0, 100, FORCED),
        Span(WAIT, 1, 50, 120),
        Span(HOLD, 1, 120, 150, VOLUNTARY),
        # Nobody waits here.
        Span(HOLD, 0, 200, 300, VOLUNTARY),
        Span(WAIT, 1, 250, 1000),
        # Taken back, while thread 1 waits.
        Span(HOLD, 0, 310, 400, VOLUNTARY),
    )
    assert [tuple(each) for each in passes(made)] == [(100, 120, 0, 1), (300, 310, 0, 0)]


def test_gils_do_not_mix() -> None:
    made = timeline(
        Span(HOLD, 0, 0, 100), Span(HOLD, 1, 200, 300), Span(WAIT, 2, 50, 500), threads=3
    )
    made.threads[1] = TimelineThread("other", "another GIL")
    assert passes(made) == []


def test_lanes_are_capped_and_who_is_wanted_stays() -> None:
    made = convoy(2, cpu_threads=50)
    drawn, left_out = tracks.lanes(made, 40, {50})
    assert len(drawn) == 40
    assert left_out == 11
    assert drawn[-1].thread == 50
    assert [lane.thread for lane in drawn] == sorted(lane.thread for lane in drawn)


def test_threads_of_one_gil_are_together_and_silent_ones_have_no_lane() -> None:
    made = timeline(Span(HOLD, 0, 0, 9), Span(HOLD, 1, 0, 9), Span(HOLD, 2, 9, 20), threads=4)
    made.threads[1] = TimelineThread("other", "another GIL")
    assert [lane.thread for lane in tracks.lanes(made, 40)[0]] == [0, 2, 1]


def test_a_lone_short_span_is_as_wide_as_the_least_that_can_be_seen() -> None:
    spans = [Span(WAIT, 0, 0, 5000), Span(HOLD, 0, 5000, 5003), Span(WAIT, 0, 5003, 10_000)]
    wait, after, hold = sorted(
        tracks.bars(spans, 0, 100, 2), key=lambda bar: (bar.widened, bar.left)
    )
    assert (hold.kind, hold.widened) == (HOLD, True)
    assert hold.right - hold.left == pytest.approx(2)
    assert (hold.left + hold.right) / 2 == pytest.approx(50.015)
    assert (wait.left, wait.right, after.left, after.right) == (0, 50, 50.03, 100)


def test_what_is_crowded_keeps_its_share_of_each_column() -> None:
    # In each 10 ns 3 are held and 4 waited: nothing is as wide as a column of 100.
    spans = [
        span
        for at in range(0, 10_000, 10)
        for span in (Span(HOLD, 0, at, at + 3), Span(WAIT, 0, at + 5, at + 9))
    ]
    (bar,) = tracks.bars(spans, 0, 100, 2)
    assert len(bar.spans) == 2000
    full = bar.shares[:99]
    assert all(share == pytest.approx((0.3, 0.4, 0)) for share in full)


def test_shares_of_columns_add_up_to_the_time() -> None:
    made = convoy(10)
    lane = tracks.lanes(made, 2)[0][1]
    column_ns = (made.end_ns - made.begin_ns) / 61
    found = tracks.shares(lane.states, made.begin_ns, column_ns, 61)
    held_ns = sum(held for held, _, _ in found) * column_ns
    waited_ns = sum(waited for _, waited, _ in found) * column_ns
    assert held_ns == pytest.approx(window.sums(made, HOLD)[1])
    assert waited_ns == pytest.approx(window.sums(made, WAIT)[1])
    assert max(sum(shares) for shares in found) <= 1 + 1e-9


def test_cut_keeps_what_is_within_and_cuts_what_is_not() -> None:
    made = timeline(
        Span(HOLD, 0, 0, 100, FORCED),
        Span(FORCED_WAIT, 0, 100, 140),
        Span(HOLD, 1, 120, 300, VOLUNTARY),
        Span(REQUEST, 1, 400, 500),
    )
    made.drop_requests = [DropRequest(90, 1, 0), DropRequest(290, 0, 1)]
    part = window.cut(made, 50, 200)
    assert part.spans == [
        Span(HOLD, 0, 50, 100, FORCED),
        Span(FORCED_WAIT, 0, 100, 140),
        Span(HOLD, 1, 120, 200, UNFINISHED),
    ]
    assert part.drop_requests == [DropRequest(90, 1, 0)]
    assert (part.begin_ns, part.end_ns) == (50, 200)


@pytest.mark.parametrize("lasts_ns", [7, 999, 33 * US, 4 * MS, 21 * MS, 1234 * MS, 100_000 * MS])
@pytest.mark.parametrize("interval_ns", [0, 5 * MS, 100 * US, 1])
def test_marks_are_few_evenly_apart_and_differ(lasts_ns: int, interval_ns: int) -> None:
    found = axis.marks(1000, 1000 + lasts_ns, 1000, 10, interval_ns)
    assert 2 <= len(found) <= 11
    assert found[0].label == "0"
    assert len({mark.label for mark in found}) == len(found)
    steps = {round((after.at_ns - before.at_ns) / lasts_ns, 9) for before, after in pairwise(found)}
    assert len(steps) == 1


def test_marks_are_at_multiples_of_the_switch_interval_where_these_can_be_seen() -> None:
    found = axis.marks(0, 22 * MS, 0, 10, 5 * MS)
    assert [(mark.label, mark.multiple) for mark in found] == [
        ("0", 0),
        ("5 ms", 1),
        ("10 ms", 2),
        ("15 ms", 3),
        ("20 ms", 4),
    ]
    assert {mark.multiple for mark in axis.marks(0, 100 * US, 0, 10, 5 * MS)} == {0}


def test_zero_may_be_later_than_the_begin() -> None:
    found = axis.marks(90, 210, 100, 12)
    assert [(mark.at_ns, mark.label) for mark in found[:2]] == [(100, "0"), (110, "10 ns")]
