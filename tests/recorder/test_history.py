"""The sums over any range equal those of the ticks that were sent, in memory or in the store."""

from __future__ import annotations

import sqlite3
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ticks import GC_EVENT, SLOW, START, STARTED, STOPPED, Bench, message, requests, tick

from headway import _native
from headway.recorder.query.history import History, NoRecording
from headway.recorder.records import merging
from headway.recorder.store.reading import Reader
from headway.recorder.store.selection import EVERYTHING, Selection

PIDS = (100, 101, 102)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """70 minutes of three processes: rolled up to hours, with an open end."""
    bench = Bench(tmp_path_factory.mktemp("history") / "store.sqlite")
    bench.run(4200, PIDS)
    # Has the reader open the store, which no test is to be blamed for.
    assert bench.requests(START, START + 1) == 0
    yield bench
    bench.stop()


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (0, 4201),
        (7, 4190),
        (1, 2),
        (59, 61),
        (3590, 3611),
        (100, 3700),
        (4100, 4201),
        (4199, 4300),
        (-5000, 10),
    ],
)
@pytest.mark.parametrize("pids", [(), (101,), (100, 102)])
def test_a_range_has_every_tick_once(
    recorded: Bench, start: int, end: int, pids: tuple[int, ...]
) -> None:
    selection = Selection(pids=frozenset(pids))
    seconds = min(end, 4201) - max(start, 1)
    expected = seconds * 10 * len(pids or PIDS)
    assert recorded.requests(START + start, START + end, selection) == expected


@pytest.mark.parametrize("step", [1, 5, 10, 12, 60, 100, 900, 5000])
def test_steps_have_every_tick_once(recorded: Bench, step: float) -> None:
    start, end = START + 33, START + 4201
    points = recorded.history.records(start, end, step, EVERYTHING)
    length = recorded.history.step_of(start, end, step, EVERYTHING)
    assert length >= step
    assert [time for time, _, _ in points] == [
        points[0][0] + n * length for n in range(len(points))
    ]
    assert points[0][0] <= start < points[0][0] + length
    # The first step begins before the range.
    missing = max(0, points[0][0] - START - 1)
    assert sum(requests(record) for _, record, _ in points) == (4200 - missing) * 30


def test_steps_without_ticks_are_none(recorded: Bench) -> None:
    points = recorded.history.records(START - 100, START, 10, EVERYTHING)
    assert [record for _, record, _ in points] == [None] * len(points)
    assert recorded.history.record(START - 100, START, EVERYTHING) is None


def test_a_range_begins_with_its_first_tick(recorded: Bench) -> None:
    end = START + 4201
    first = recorded.history.begin(START - 9000, end, EVERYTHING)
    # A tick is of the interval that it ends.
    assert START - 2 < first <= START + 1
    assert recorded.history.begin(START + 100, end, EVERYTHING) == START + 100
    assert recorded.history.begin(START - 200, START - 100, EVERYTHING) == START - 200
    assert recorded.history.begin(START - 200, end, Selection(pids=frozenset([7]))) == START - 200


def test_sums_of_groups_outlive_their_processes(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    bench.run(4000, (100,))
    later = bench.clock.now
    bench.run(10, (200,))
    bench.settle()
    bench.stop()
    history = History(reader=Reader(str(tmp_path / "store.sqlite")))
    assert START - 2 < history.begin(START - 9000, later, EVERYTHING) <= START + 1
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as database, database:
        database.execute("DELETE FROM process WHERE pid = 100")
    assert history.begin(START - 9000, later + 10, EVERYTHING) == START - 9000
    history.close()


def test_percentiles_are_those_of_all_requests(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    # 1 % takes a second, in one process and one minute.
    bench.run(400, (100,))
    bench.run(4, (101,), request_time_histogram=[(1.0, 10)])
    bench.run(100, (100,))
    record = bench.history.record(START, bench.clock.now + 1, EVERYTHING)
    assert record is not None
    found = _native.telemetry_read(record)["request_time_histogram"]
    assert found["count"] == 5040
    assert found["max"] == pytest.approx(1.0)
    assert found["p50"] == pytest.approx(0.02, rel=0.07)
    assert found["p99"] == pytest.approx(0.02, rel=0.07)
    assert found["p999"] == pytest.approx(1.0, rel=0.07)
    bench.stop()


def test_processes_of_a_range_have_their_own_sums(recorded: Bench) -> None:
    rows = recorded.history.per_process(START, START + 4201, EVERYTHING)
    assert [(process.pid, requests(record)) for process, record in rows] == [
        (pid, 42_000) for pid in PIDS
    ]
    assert {process.identity["headway_version"] for process, _ in rows} == {"0.1.0"}


def test_busy_slots_over_time(recorded: Bench) -> None:
    rows = recorded.history.slots(START + 3000, START + 4000, 100, EVERYTHING)
    assert [process.pid for process, _ in rows] == list(PIDS)
    for _, points in rows:
        assert [busy for _, busy in points] == [pytest.approx([0.5, 0.25])] * len(points)


def test_processes_are_told_apart_by_host_and_group(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    bench.run(70, (1,))
    bench.run(70, (1,), hostname="beta")
    bench.run(70, (2,), process_group="admin")
    end = bench.clock.now + 1
    for selection, seconds in (
        (Selection(hosts=frozenset({"beta"})), 70),
        (Selection(hosts=frozenset({"alpha"})), 140),
        (Selection(groups=frozenset({"shop"})), 140),
        (Selection(hosts=frozenset({"alpha"}), groups=frozenset({"shop"})), 70),
        (Selection(pids=frozenset({1})), 140),
        (Selection(hosts=frozenset({"gamma"})), 0),
    ):
        assert bench.requests(START, end, selection) == seconds * 10
        points = bench.history.records(START, end, 10, selection)
        assert sum(requests(record) for _, record, _ in points) == seconds * 10
    bench.stop()


def test_who_is_alive(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    bench.run(30, (1, 2))
    bench.run(30, (2,))
    now = {each.pid: each.alive for each in bench.history.processes()}
    assert now == {1: False, 2: True}
    then = bench.history.processes(at=START + 20, window_s=10)
    assert [(each.pid, each.alive) for each in then] == [(1, True), (2, True)]
    assert bench.history.processes(at=START - 10) == []
    bench.give(message(STOPPED, 2, 99, bench.clock.now, hostname="alpha"))
    assert not any(each.alive for each in bench.history.processes())
    bench.stop()


def test_an_hour_old_range_is_answered_by_coarser_rows(tmp_path: Path) -> None:
    """The sums stay exact, at the coarser resolution."""
    bench = Bench(tmp_path / "store.sqlite")
    bench.run(600, (100,))
    bench.clock.now += 4 * 86_400
    bench.run(1)
    bench.settle()
    step = bench.history.step_of(START, START + 600, 10, EVERYTHING)
    assert step == 60
    points = bench.history.records(START, START + 601, 10, EVERYTHING)
    assert sum(requests(record) for _, record, _ in points) == 6000
    of_one = bench.history.records(START, START + 601, 10, Selection(pids=frozenset({100})))
    assert sum(requests(record) for _, record, _ in of_one) == 6000
    assert bench.requests(START + 90, START + 91) == 600
    bench.stop()


def test_a_late_tick_is_in_every_sum(tmp_path: Path) -> None:
    """A datagram can wait in the socket for hours while the recorder is suspended."""
    bench = Bench(tmp_path / "store.sqlite")
    bench.run(200, (100,))
    bench.clock.now += 3 * 3600
    bench.run(120, (100,))
    bench.settle()
    before = {step: totals(bench, step) for step in (1, 10, 60, 300, 3600)}
    late = [tick(200, n, START + 50 + n) for n in range(30)]
    bench.give(*late[:10])
    bench.store_now()
    bench.give(*late[10:])
    assert totals(bench, 10) == tuple(each + 300 for each in before[10])
    # Now they are rolled up, too.
    bench.clock.now += 70
    bench.settle()
    for step, (of_groups, of_processes) in before.items():
        assert totals(bench, step) == (of_groups + 300, of_processes + 300), step
    bench.stop()


def totals(bench: Bench, step: float) -> tuple[int, int]:
    end = bench.clock.now + 1
    points = bench.history.records(START, end, step, EVERYTHING)
    pids = Selection(pids=frozenset({100, 200}))
    of_processes = bench.history.records(START, end, step, pids)
    return (
        sum(requests(record) for _, record, _ in points),
        sum(requests(record) for _, record, _ in of_processes),
    )


def test_slow_requests_end_where_they_were(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    bench.run(5)
    start = bench.clock.now

    def slow(state: int, seconds: float) -> bytes:
        bench.sequence += 1
        bench.clock.now += 1
        return message(
            SLOW,
            100,
            bench.sequence,
            bench.clock.now,
            slow_record_state=state,
            slow_start_stamp=start,
            slow_duration=seconds,
            slow_thread_id=7,
            slow_path_info="/report",
            slow_stack="File x",
        )

    bench.give(slow(0, 1.0))
    bench.store_now()
    bench.give(slow(0, 2.0))
    found = bench.history.events("slow", START, START + 100, EVERYTHING, 10)
    assert [(each["slow_duration"], each["slow_record_state"]) for each in found] == [(2.0, 0)]
    bench.store_now()
    bench.give(slow(1, 3.5))
    for _ in range(2):
        (event,) = bench.history.events("slow", START, START + 100, EVERYTHING, 10)
        assert (event["slow_duration"], event["slow_record_state"]) == (3.5, 1)
        assert (event["host"], event["group"], event["pid"]) == ("alpha", "shop", 100)
        assert (event["time"], event["slow_stack"]) == (start, "File x")
        bench.store_now()
    bench.stop()


def test_events_are_the_latest_first_and_bounded(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    bench.run(1)
    for n in range(50):
        bench.clock.now += 1
        bench.sequence += 1
        bench.give(
            message(
                GC_EVENT,
                100,
                bench.sequence,
                bench.clock.now,
                gc_event_start_stamp=bench.clock.now - 0.5,
                gc_event_duration=0.001 * n,
                gc_event_generation=2,
            )
        )
        if n == 25:
            bench.store_now()
    end = bench.clock.now + 1
    found = bench.history.events("gc", START, end, EVERYTHING, 10)
    assert [each["gc_event_duration"] for each in found] == [
        pytest.approx(0.001 * n) for n in range(49, 39, -1)
    ]
    assert len(bench.history.events("gc", START, end, EVERYTHING, 1000)) == 50
    assert bench.history.events("gc", START, end, Selection(pids=frozenset({1})), 10) == []
    bench.stop()


def test_long_holds_are_events(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    hold = {
        "hold_stamp": START + 0.5,
        "hold_duration": 0.3,
        "hold_native_id": 5,
        "hold_thread": "worker",
        "hold_stack": "File y",
    }
    bench.run(1, (100,), holds=[hold])
    (event,) = bench.history.events("hold", START, START + 10, EVERYTHING, 10)
    assert (event["hold_duration"], event["hold_stack"], event["time"]) == (
        0.3,
        "File y",
        START + 0.5,
    )
    bench.stop()


def test_the_lifecycle_of_a_process(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    bench.give(message(STARTED, 5, 1, START, hostname="alpha", process_group="shop"))
    bench.give(tick(5, 2, START + 1, process_started_stamp=None))
    bench.give(
        message(
            STOPPED,
            5,
            3,
            START + 2,
            hostname="alpha",
            shutdown_reason="crash",
            death="killed by SIGSEGV",
            reported_by_supervisor=1,
        )
    )
    found = bench.history.events("lifecycle", START, START + 10, EVERYTHING, 10)
    assert [each["event"] for each in found] == ["process_stopped", "process_started"]
    assert found[0]["death"] == "killed by SIGSEGV"
    assert found[0]["group"] == "shop"
    assert found[0]["started"] == found[1]["started"] == START
    bench.stop()


def test_a_recording_that_is_not_open(recorded: Bench) -> None:
    with pytest.raises(NoRecording):
        recorded.history.record(START, START + 1, Selection(recording="monday"))


@pytest.mark.parametrize("query", ["records", "slots"])
def test_a_query_holds_few_records_at_a_time(
    recorded: Bench, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Those of hours at the resolution of ticks may be gigabytes."""
    monkeypatch.setattr(merging, "MAX_UNMERGED_BYTES", 100_000)
    record = recorded.history.record(START + 7, START + 9, EVERYTHING)
    assert record is not None
    # The least that the ticks of this hour take at once.
    ticks_bytes = 3600 * len(PIDS) * sys.getsizeof(record)
    ask = getattr(recorded.history, query)
    tracemalloc.start()
    try:
        found = ask(START, START + 3600, 5.0, EVERYTHING)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found
    assert peak_bytes < ticks_bytes
