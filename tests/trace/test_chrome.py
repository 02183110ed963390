"""A timeline as a Chrome trace: its tracks, and what is on them."""

from __future__ import annotations

from pathlib import Path

from traces import Chrome, Slice

from headway.trace.perfetto import to_chrome
from headway.trace.timeline import (
    FORCED,
    HOLD,
    REQUEST,
    RUNNING,
    WAIT,
    DropRequest,
    Span,
    Timeline,
    TimelineThread,
)


def chrome_of(timeline: Timeline, tmp_path: Path) -> Chrome:
    path = tmp_path / "trace.json"
    path.write_text("".join(to_chrome(timeline)), encoding="ascii")
    return Chrome(path)


def simulated() -> Timeline:
    """As a simulation has it: no process, no thread ids, a thread without a GIL."""
    return Timeline(
        title="the convoy",
        threads=[
            TimelineThread("server", "main"),
            TimelineThread("hog", "main"),
            TimelineThread("client"),
        ],
        end_ns=9_000,
        spans=[
            Span(RUNNING, 0, 500, 2_000),
            Span(REQUEST, 0, 400, 8_000),
            Span(WAIT, 0, 1_001, 5_003),
            Span(HOLD, 1, 0, 5_002, FORCED),
            Span(HOLD, 0, 5_003, 6_000, "voluntary"),
            Span(RUNNING, 2, 1, 2),
        ],
        drop_requests=[DropRequest(5_000, 0, 1), DropRequest(5_001, 0)],
    )


def test_a_simulated_timeline_has_its_tracks(tmp_path: Path) -> None:
    chrome = chrome_of(simulated(), tmp_path)
    assert chrome.process == "the convoy"
    assert chrome.pids == {1}
    told = {"GIL": "main", "drop": "forced"}
    assert chrome.of("GIL main") == [
        Slice("GIL main", "hog", 0, 5_002, told),
        Slice("GIL main", "server", 5_003, 6_000, {"GIL": "main", "drop": "voluntary"}),
    ]
    assert chrome.of("hog") == [Slice("hog", "hold", 0, 5_002, told)]
    assert [(one.name, one.from_ns, one.to_ns) for one in chrome.of("server")] == [
        ("wait", 1_001, 5_003),
        ("hold", 5_003, 6_000),
    ]
    # Neither lies in the other's slices, so each has a track of its own.
    assert [one[1:4] for one in chrome.of("server on a core")] == [("running", 500, 2_000)]
    assert [one[1:4] for one in chrome.of("requests of server")] == [("request", 400, 8_000)]
    assert [one[1:4] for one in chrome.of("client on a core")] == [("running", 1, 2)]


def test_an_arrow_leads_to_the_holder_where_it_was_seen(tmp_path: Path) -> None:
    chrome = chrome_of(simulated(), tmp_path)
    marks = [(chrome.names[mark["tid"]], mark["name"]) for mark in chrome.marks]
    assert marks == [
        ("server", "drop request"),
        ("hog", "asked to drop"),
        ("server", "drop request"),
    ]
    assert [(flow["ph"], chrome.names[flow["tid"]]) for flow in chrome.flows] == [
        ("s", "server"),
        ("f", "hog"),
    ]


def test_names_may_be_any_text(tmp_path: Path) -> None:
    names = ['"quoted" \\ and\nbroken', "Größe \u2028 \U0001f40d", "\udc80"]
    timeline = Timeline("t", [TimelineThread(name, name, 5 + n) for n, name in enumerate(names)], 9)
    timeline.spans = [Span(HOLD, place, 1, 2) for place in range(3)]
    chrome = chrome_of(timeline, tmp_path)
    assert [chrome.names[5 + number] for number in range(3)] == names
    assert [one.name for one in chrome.slices if one.track.startswith("GIL")] == names


def test_times_are_exact_however_late(tmp_path: Path) -> None:
    late_ns = 10**18 + 1
    timeline = Timeline("t", [TimelineThread("one", "main")], late_ns + 9)
    timeline.spans = [Span(HOLD, 0, late_ns, late_ns + 1), Span(HOLD, 0, late_ns + 1, late_ns + 3)]
    slices = chrome_of(timeline, tmp_path).of("one")
    assert [(one.from_ns - late_ns, one.to_ns - late_ns) for one in slices] == [(0, 1), (1, 3)]
