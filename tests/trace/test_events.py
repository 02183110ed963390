"""A timeline of the events that the meter kept: what is cut, what goes on, what is called how."""

from __future__ import annotations

from typing import Any

from made_reports import decoded, report, thread

from headway.trace import events
from headway.trace.events import EVENT, GIL_SHIFT, KIND_SHIFT, to_timeline
from headway.trace.timeline import (
    FORCED,
    FORCED_WAIT,
    HOLD,
    UNFINISHED,
    VOLUNTARY,
    WAIT,
    DropRequest,
    Span,
    Timeline,
)

BEGAN_NS = 1_000
MAIN, OTHER = 11, 12


def trace_of(*kept: tuple[int, int, int], lost: int = 0, gil: int = 1, **other: Any) -> Timeline:
    """Of (when, what, who), all about one GIL; the trace ends at 100."""
    raw = b"".join(
        EVENT.pack(BEGAN_NS + at, gil << GIL_SHIFT | kind << KIND_SHIFT | who)
        for at, kind, who in kept
    )
    trace = {
        "began_ns": BEGAN_NS,
        "ended_ns": BEGAN_NS + 100,
        "lost": lost,
        "events": raw,
        "threads": other.get("ended", []),
        "gils": other.get("gils", [(1, 0, "")]),
    }
    rows = other.get("rows", [])
    threads = [{**thread("x"), **row} for row in rows]
    return to_timeline(trace, decoded({**report([], 1.0), "pid": 7, "threads": threads}), "app.py")


def test_a_wait_ends_in_a_hold_and_a_forced_drop_in_a_forced_wait() -> None:
    timeline = trace_of(
        (0, events.HELD, MAIN),
        (10, events.WAITS, OTHER),
        (15, events.ASKS, OTHER),
        (20, events.DROPS_FORCED, MAIN),
        (23, events.TAKES_AFTER_WAIT, OTHER),
        # Recorded after the end, by a thread that did not have the GIL.
        (21, events.FORCED_TO_WAIT, MAIN),
        (24, events.FORCED_WAIT_ENDED, MAIN),
        (30, events.DROPS, OTHER),
        (40, events.TAKES, MAIN),
    )
    assert timeline.spans == [
        Span(HOLD, 0, 0, 20, FORCED),
        Span(WAIT, 1, 10, 23),
        Span(FORCED_WAIT, 0, 21, 24),
        Span(HOLD, 1, 23, 30, VOLUNTARY),
        Span(HOLD, 0, 40, 100, UNFINISHED),
    ]
    assert timeline.drop_requests == [DropRequest(15, 1, 0)]
    assert (timeline.begin_ns, timeline.end_ns, timeline.lost) == (0, 100, 0)
    assert (timeline.process_id, timeline.process_name) == (7, "app.py")


def test_what_began_before_the_first_event_is_cut_there() -> None:
    timeline = trace_of(
        (50, events.ASKS, OTHER),
        (60, events.DROPS_FORCED, MAIN),
        (62, events.TAKES_AFTER_WAIT, OTHER),
        (63, events.FORCED_WAIT_ENDED, MAIN),
        (70, events.WAITS, MAIN),
        lost=9,
    )
    assert timeline.begin_ns == 50
    # The holder at OTHER's request was not kept.
    assert timeline.drop_requests == [DropRequest(50, 0, -1)]
    assert timeline.spans == [
        Span(HOLD, 1, 50, 60, FORCED),
        Span(WAIT, 0, 50, 62),
        Span(FORCED_WAIT, 1, 50, 63),
        Span(HOLD, 0, 62, 100, UNFINISHED),
        Span(WAIT, 1, 70, 100),
    ]


def test_a_hold_whose_drop_is_lost_ends_with_the_next() -> None:
    timeline = trace_of((10, events.TAKES, MAIN), (20, events.TAKES, OTHER), lost=1)
    assert timeline.spans == [
        Span(HOLD, 0, 10, 20, UNFINISHED),
        Span(HOLD, 1, 20, 100, UNFINISHED),
    ]


def test_a_wait_may_end_without_a_hold() -> None:
    timeline = trace_of((10, events.WAITS, MAIN), (20, events.GAVE_UP, MAIN))
    assert timeline.spans == [Span(WAIT, 0, 10, 20)]


def test_nothing_goes_on_with_a_gil_that_is_gone() -> None:
    timeline = trace_of((10, events.TAKES, MAIN), (20, events.WAITS, OTHER), (30, events.CLOSED, 0))
    assert timeline.spans == [Span(HOLD, 0, 10, 30, UNFINISHED), Span(WAIT, 1, 20, 30)]


def test_no_events_are_an_empty_timeline() -> None:
    timeline = trace_of()
    assert (timeline.spans, timeline.threads, timeline.end_ns) == ([], [], 100)


def test_names_are_those_of_threads_that_run_then_of_those_that_ended() -> None:
    def row(native_id: int, name: str, alive: bool = True) -> dict[str, Any]:
        return {"native_id": native_id, "name": name, "alive": alive}

    timeline = trace_of(
        *((at, events.TAKES, at) for at in (11, 12, 13, 14)),
        (15, events.TAKES, 0),
        ended=[(12, "first"), (12, "second"), (13, "told at its end")],
        rows=[row(11, "runs"), row(13, "has its number now"), row(12, "ended", alive=False)],
    )
    names = [thread.name for thread in timeline.threads]
    assert names == ["runs", "second", "has its number now", "thread 14", "(unmeasured)"]


def test_gils_are_called_by_their_names_and_told_apart() -> None:
    gils = [(1, 0, ""), (2, 3, "shop"), (3, 4, ""), (4, 5, "shop"), (5, None, "")]
    names = [
        trace_of((1, events.TAKES, 1), gil=serial, gils=gils).threads[0].gil
        for serial in (1, 2, 3, 4, 5, 6)
    ]
    assert names == ["main", "shop", "interpreter 4", "shop (4)", "GIL 5", "GIL 6"]
