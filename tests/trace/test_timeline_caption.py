"""The caption of a timeline, and of one wait step by step."""

from __future__ import annotations

import pytest
from made_timelines import MS, US, convoy, quick

from headway.trace import caption, walk_through, window
from headway.trace.timeline import (
    FORCED,
    HOLD,
    VOLUNTARY,
    WAIT,
    DropRequest,
    Span,
    Timeline,
    TimelineThread,
)


def said(made: Timeline) -> str:
    return " ".join(caption.sentences(window.telling(made)))


def told(made: Timeline) -> list[str]:
    return [step.text for step in walk_through.episode(window.all_of(made))]


def test_a_convoy_is_told_with_its_figures() -> None:
    assert caption.sentences(window.telling(convoy())) == [
        "echo waited 4 times, 5.09 ms on average, one switch interval each; it held the GIL for "
        "0.3 % of the time.",
        "compute-0 held it for 98.4 % and dropped it 4 times, each time because it was asked to.",
        "This is the convoy: to have the GIL for 17 µs, echo waits 300 times as long.",
    ]


def test_an_excerpt_says_what_the_whole_was() -> None:
    assert said(convoy(100)).endswith("In all 546 ms echo waited 100 times, 5.09 ms on average.")


def test_a_wait_behind_several_threads_has_as_many_switch_intervals() -> None:
    found = said(convoy(8, cpu_threads=3))
    assert "15 ms on average, 3 switch intervals each" in found
    assert "The other 3 held it for 99.0 % and dropped it 24 times" in found
    idle = convoy(8, cpu_threads=3)
    idle.threads.append(TimelineThread("starved", "main"))
    assert "3 of the other 4 held it for 99.0 % and dropped it 24 times" in said(idle)


def test_short_waits_are_no_convoy() -> None:
    found = said(quick())
    assert "20 µs on average, far less than a switch interval (5 ms)" in found
    assert "convoy" not in found


def test_long_waits_for_short_holds_are_no_convoy_either() -> None:
    threads = [TimelineThread("echo", "main"), TimelineThread("starved", "main")]
    made = Timeline("starving", threads, 40 * MS, switch_interval_ns=5 * MS)
    made.spans = [
        Span(HOLD, 0, at * US, at * US + 8 * US, VOLUNTARY)
        for at in range(0, 40_000, 10)
        if not 20_000 <= at < 20_050
    ]
    made.spans += [
        Span(WAIT, 1, 1 * MS, 20 * MS + 10 * US),
        Span(HOLD, 1, 20 * MS + 10 * US, 20 * MS + 40 * US, FORCED),
        Span(WAIT, 1, 20 * MS + 60 * US, 40 * MS),
    ]
    found = said(made)
    assert "starved waited once, 19 ms, up to 3.8 switch intervals; it held" in found
    assert "While starved waited, echo dropped the GIL 3,892 times and took it back itself" in found
    assert "convoy" not in found


def test_a_wait_without_an_end_is_told_by_what_goes_on_meanwhile() -> None:
    threads = [TimelineThread("echo", "main"), TimelineThread("compute", "main")]
    made = Timeline("ticks", threads, 10 * MS)
    made.spans = [Span(WAIT, 0, 0, 10 * MS)]
    made.spans += [
        Span(HOLD, 1, at * US, at * US + 99 * US, VOLUNTARY) for at in range(0, 10_000, 100)
    ]
    assert said(made).startswith(
        "echo waited for 10 ms, longer than is seen here; it never held the GIL."
    )
    assert told(made) == [
        "echo waits for the GIL.",
        "compute drops it.",
        "1 µs later it takes it back, before echo does.",
        "99 µs later it drops it again.",
        "1 µs later it takes it back, before echo does.",
    ]


def test_nobody_waited() -> None:
    made = Timeline("alone", [TimelineThread("one", "main")], 100, spans=[Span(HOLD, 0, 0, 9)])
    assert said(made) == "Nobody waited: 1 hold began with a free GIL."
    assert told(made) == []
    free = Timeline("free", [TimelineThread("one"), TimelineThread("two")], 100)
    assert said(free) == "No thread has a GIL, so none waits for one."


def test_a_wait_is_told_step_by_step() -> None:
    assert told(convoy()) == [
        "echo wants the GIL, and waits: compute-0 holds it.",
        "After 5.06 ms, a switch interval, it asks compute-0 to drop the GIL.",
        "compute-0 notices 4 µs later, and drops it: a forced drop.",
        "30 µs later echo has it.",
        "It needed the GIL for 17 µs, in 2 holds, and drops it unasked.",
        "35 µs later compute-0 has it. When echo wants it again, all this begins anew.",
    ]


def test_steps_are_in_order_and_each_is_in_the_lane_of_who_does_it() -> None:
    steps = walk_through.episode(window.all_of(convoy(4, cpu_threads=2)))
    assert [step.at_ns for step in steps] == sorted(step.at_ns for step in steps)
    assert [step.thread for step in steps] == [2, 2, 1, 2, 2, 0]
    assert "in which others took the GIL once, it asks compute-1" in steps[1].text


def test_who_asked_is_named_where_it_is_another() -> None:
    made = convoy()
    made.threads.append(TimelineThread("third", "main"))
    made.drop_requests = [DropRequest(each.at_ns, 2, 0) for each in made.drop_requests]
    assert told(made)[1] == (
        "After 5.06 ms, a switch interval, third asks compute-0 to drop the GIL."
    )


def test_what_was_not_seen_is_not_told() -> None:
    made = convoy(1)
    made.drop_requests = []
    made.spans = [
        Span(span.kind, span.thread, span.from_ns, span.to_ns, VOLUNTARY)
        if span.kind == HOLD
        else span
        for span in made.spans
    ]
    found = told(made)
    assert found[1] == "compute-0 drops it unasked."
    assert not any("asks" in text or "forced" in text or "anew" in text for text in found)


@pytest.mark.parametrize("width", [20, 40, 60, 100])
def test_a_number_and_its_unit_are_on_one_line(width: int) -> None:
    lines = caption.paragraph(said(convoy()) * 3, width)
    assert max(map(len, lines)) <= width
    assert not any(line.startswith(("ms", "µs", "%")) for line in lines)
