"""What becomes of an outcome's events on a timeline."""

from __future__ import annotations

from headway.simulate.events import timeline
from headway.simulate.scenario import Gil, Outcome, Scenario, Thread
from headway.timeline.timeline import (
    FORCED,
    HOLD,
    REQUEST,
    UNFINISHED,
    VOLUNTARY,
    WAIT,
    DropRequest,
    Span,
    Timeline,
)

ECHO, COMPUTE, CLIENT = range(3)


def drawn(*events: tuple[float, int, str], lost: int = 0) -> Timeline:
    scenario = Scenario(
        machine={},
        gils=[Gil()],
        threads=[Thread("echo", [], gil=0), Thread("compute-0", [], gil=0), Thread("client", [])],
        begin_ns=100,
        end_ns=200,
    )
    told = {"timeline": [list(each) for each in events], "timeline_lost": lost}
    return timeline("a convoy", scenario, Outcome(told))


def test_a_forced_switch_is_a_wait_a_request_and_two_holds() -> None:
    found = drawn(
        (110, ECHO, "wait"),
        (150, ECHO, "ask"),
        (151, COMPUTE, "forced_drop"),
        (155, ECHO, "take"),
        (160, ECHO, "drop"),
        (162, COMPUTE, "take"),
    )
    assert found.spans == [
        # It held the GIL when the window began, and holds it at its end.
        Span(HOLD, COMPUTE, 100, 151, FORCED),
        Span(WAIT, ECHO, 110, 155),
        Span(HOLD, ECHO, 155, 160, VOLUNTARY),
        Span(HOLD, COMPUTE, 162, 200, UNFINISHED),
    ]
    assert found.drop_requests == [DropRequest(150, ECHO, COMPUTE)]


def test_a_thread_without_a_gil_has_requests() -> None:
    found = drawn((120, CLIENT, "end"), (120, CLIENT, "begin"), (150, CLIENT, "end"))
    assert found.spans == [Span(REQUEST, CLIENT, 100, 120), Span(REQUEST, CLIENT, 120, 150)]
    assert [thread.gil for thread in found.threads] == ["main", "main", ""]


def test_a_take_of_a_free_gil_had_no_wait() -> None:
    assert drawn((130, ECHO, "take"), (140, ECHO, "drop")).spans == [
        Span(HOLD, ECHO, 130, 140, VOLUNTARY)
    ]


def test_whom_a_request_is_for_may_be_unknown() -> None:
    assert drawn((130, ECHO, "ask")).drop_requests == [DropRequest(130, ECHO, -1)]


def test_events_that_were_lost_are_counted() -> None:
    assert drawn(lost=7).lost == 7
