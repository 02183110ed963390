"""The events of an outcome on a timeline."""

from __future__ import annotations

from dataclasses import asdict

from headway.trace import caption, window
from headway.trace.timeline import (
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
from headway_lab.simulated.events import timeline
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.scenario import Gil, Outcome, Scenario, Thread, compute

ECHO, COMPUTE, CLIENT = range(3)


def drawn(
    *events: tuple[float, int, str], lost: int = 0, ended_ns: int = 200, policy: str = "interval"
) -> Timeline:
    scenario = Scenario(
        machine={},
        gils=[Gil(policy)],
        threads=[Thread("echo", [], gil=0), Thread("compute-0", [], gil=0), Thread("client", [])],
        begin_ns=100,
        end_ns=200,
    )
    told = {
        "timeline": [list(each) for each in events],
        "timeline_lost": lost,
        "ended_ns": ended_ns,
    }
    return timeline("a convoy", scenario, Outcome(told))


def test_a_forced_switch_is_a_wait_a_request_and_two_holds() -> None:
    found = drawn(
        (100, COMPUTE, "take"),
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
    found = drawn(
        (100, CLIENT, "begin"),
        (120, CLIENT, "end"),
        (120, CLIENT, "begin"),
        (150, CLIENT, "end"),
    )
    assert found.spans == [Span(REQUEST, CLIENT, 100, 120), Span(REQUEST, CLIENT, 120, 150)]
    assert [thread.gil for thread in found.threads] == ["main", "main", ""]


def test_a_take_of_a_free_gil_had_no_wait() -> None:
    assert drawn((130, ECHO, "take"), (140, ECHO, "drop")).spans == [
        Span(HOLD, ECHO, 130, 140, VOLUNTARY)
    ]


def test_whom_a_request_is_for_may_be_unknown() -> None:
    assert drawn((130, ECHO, "ask")).drop_requests == [DropRequest(130, ECHO, -1)]


def test_after_events_that_were_lost_nothing_is_known() -> None:
    found = drawn((110, COMPUTE, "take"), (150, ECHO, "wait"), lost=7)
    assert found.lost == 7
    assert found.end_ns == 150
    assert found.spans[0] == Span(HOLD, COMPUTE, 110, 150, UNFINISHED)


def test_it_ends_when_all_scripts_are_over() -> None:
    assert drawn((110, COMPUTE, "take"), ended_ns=130).spans == [
        Span(HOLD, COMPUTE, 110, 130, UNFINISHED)
    ]


def test_the_switch_interval_is_that_of_all_gils() -> None:
    assert drawn().switch_interval_ns == 5_000_000


def test_ticks_have_no_switch_interval() -> None:
    """Nor is it a convoy when the same thread takes the GIL back all the time."""
    found = drawn(
        (100, COMPUTE, "take"),
        (101, ECHO, "wait"),
        (150, COMPUTE, "drop"),
        (151, COMPUTE, "take"),
        (190, COMPUTE, "drop"),
        (191, ECHO, "take"),
        (192, ECHO, "drop"),
        policy="ticks",
    )
    assert found.switch_interval_ns == 0
    assert not any("convoy" in said for said in caption.sentences(window.all_of(found)))


def test_what_was_under_way_when_the_window_opened_begins_then() -> None:
    """Simulated: echo waits, and compute-0 has held the GIL since long before."""
    scenario = Scenario(
        machine=asdict(Machine()),
        gils=[Gil("interval", switch_interval_ns=1e9)],
        threads=[
            Thread("compute-0", [compute(1e9)], gil=0),
            Thread("echo", [compute(1e3)], gil=0, starts_ns=1e6),
        ],
        begin_ns=5e6,
        end_ns=6e6,
        timeline_events=100,
    )
    found = timeline("held before", scenario, scenario.run())
    states = [span for span in found.spans if span.kind in (HOLD, WAIT)]
    assert states == [
        Span(HOLD, 0, 5_000_000, 6_000_000, UNFINISHED),
        Span(WAIT, 1, 5_000_000, 6_000_000, UNFINISHED),
    ]
