"""The stacks that make threads wait, from the ticks to the tree of a flame graph: over time, over
processes, over a restart, and without their names."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from launch import run_main
from ticks import START, TICK, Bench, Clock

from headway import _native
from headway.profile import sides
from headway.profile.flame_tree import Node
from headway.profile.model import Frame
from headway.recorder.query.history import History
from headway.recorder.query.query import BadQuery, Query
from headway.recorder.query.stacks import late_stacks_of, stacks_of, tree
from headway.recorder.records import calls as record_calls
from headway.recorder.records.stacks import frame_of
from headway.recorder.site import api
from headway.recorder.store import calls as stored_calls
from headway.recorder.store.reading import Reader
from headway.recorder.store.recording import open_recording
from headway.recorder.store.selection import EVERYTHING, Selection

# Two stacks with one line, and an endpoint of one of them.
LINES = [
    {"line_number": 16, "line_function": "work", "line_place": "/app.py:7", "line_endpoint": "/a"},
    {"line_number": 17, "line_function": "work", "line_place": "/app.py:7"},
]
CALLS = [
    {"call_number": 1, "line_function": "main", "line_place": "/app.py:1"},
    {"call_number": 2, "call_parent": 1, "line_function": "work", "line_place": "/app.py:7"},
    {"call_number": 3, "call_parent": 2, "line_endpoint": "/a"},
]
NAMED = {"line_names": LINES, "calls": CALLS}
# Microseconds; 1 is the line of handoffs.
WAITED = {
    "line_numbers": [16, 17, 1],
    "line_times": [50_000, 20_000, 5_000],
    "stack_numbers": [3, 2],
    "stack_times": [40_000, 20_000],
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store.sqlite")
    yield bench
    bench.stop()


def waits(history: History, end: float, selection: Selection = EVERYTHING) -> dict[str, int]:
    """The waits in milliseconds of each call with all its callers."""
    raw = history.record(START, end, selection)
    assert raw is not None
    record = _native.telemetry_read(raw)
    found: dict[str, int] = {}

    def walk(node: Node, callers: str) -> None:
        name = f"{callers}/{node.frame.function}"
        found[name] = round(node.waited_ns / 1e6)
        for child in node.children:
            walk(child, name)

    walk(tree(stacks_of(record, lambda ids: history.calls(ids, selection.recording))), "")
    return found


ONE_TICK = {
    "/all": 75,
    "/all//a": 50,
    "/all//a/main": 40,
    "/all//a/main/work": 40,
    "/all//a/(deeper calls not kept)": 10,
    "/all//a/(deeper calls not kept)/work": 10,
    "/all/main": 20,
    "/all/main/work": 20,
    "/all/(handoff)": 5,
}


# The same names: the loop blocked in `work`, and computed in `main` and in a line of another tick.
LATE = {
    "line_names": [
        {"line_number": 16, "line_function": "work", "line_place": "/app.py:7"}
        | {"line_endpoint": "handle", "line_holder": "worker"},
        {"line_number": 17, "line_function": "main", "line_place": "/app.py:1"},
    ],
    "calls": [
        {"call_number": 1, "line_function": "(waited)"},
        {"call_number": 2, "call_parent": 1, "line_function": "main", "line_place": "/app.py:1"},
        {"call_number": 3, "call_parent": 2, "line_function": "work", "line_place": "/app.py:7"},
    ],
    "late_numbers": [16, 17, 0],
    "late_parts": [1, 0, 2],
    "late_times": [50_000, 20_000, 5_000],
    "late_stack_numbers": [3],
    "late_stack_times": [40_000],
}


def test_late_stacks_begin_with_what_the_loop_did(bench: Bench) -> None:
    bench.run(1, **LATE)
    raw = bench.history.record(START, bench.clock.now + 1, EVERYTHING)
    assert raw is not None
    stacks = late_stacks_of(
        _native.telemetry_read(raw), lambda ids: bench.history.calls(ids, EVERYTHING.recording)
    )
    found = {
        "/".join(frame.function for frame in each.frames): round(each.waited_ns / 1e6)
        for each in stacks
    }
    cut = "(deeper calls not kept)"
    assert found == {
        "(waited)/main/work": 40,
        f"(waited)/{cut}/work": 10,
        f"(computed)/{cut}/main": 20,
        f"(blocked)/{cut}/(other)": 5,
    }
    assert waits(bench.history, bench.clock.now + 1) == {"/all": 0}


def test_the_api_has_late_lines_and_their_flame_graph(bench: Bench) -> None:
    bench.run(1, **LATE)
    query = Query(f"from={START}&to={bench.clock.now + 1}")
    rows = api.holders(bench.history, query)["late_lines"]
    assert [(row["part"], row["function"], row["late"]) for row in rows] == [
        ("waited", "work", pytest.approx(0.05)),
        ("computed", "main", pytest.approx(0.02)),
        ("blocked", "(other)", pytest.approx(0.005)),
    ]
    expected = {"file": "/app.py", "line": 7, "callback": "handle", "holder": "worker"}
    assert expected.items() <= rows[0].items()
    late = Query(f"from={START}&to={bench.clock.now + 1}&of=late")
    graph = api.QUERIES["flame_graph"](bench.history, late)
    assert (graph["has_stacks"], graph["endpoints"]) == (True, [])
    names = [each["function"] for each in graph["calls"]]
    assert names[:4] == ["all", "(waited)", "(computed)", "(blocked)"]
    assert "handle" not in names
    assert not api.QUERIES["flame_graph"](bench.history, query)["has_stacks"]
    with pytest.raises(BadQuery, match="of: found 'what'; allowed: , waits, late"):
        api.QUERIES["flame_graph"](bench.history, Query("of=what"))


def times(factor: int) -> dict[str, int]:
    return {name: factor * waited for name, waited in ONE_TICK.items()}


def test_a_line_is_divided_among_its_stacks(bench: Bench) -> None:
    bench.run(1, **NAMED, **WAITED)
    assert waits(bench.history, bench.clock.now + 1) == ONE_TICK


def test_a_stack_may_exceed_the_row_of_its_line(bench: Bench) -> None:
    """The largest lines and the largest stacks are kept apart from each other."""
    bench.run(1, **NAMED, **WAITED)
    # In this tick the lines are among the others, and the stack has its row. 0 is their number.
    waited = {"stack_numbers": [3], "stack_times": [30_000]}
    bench.run(1, line_numbers=[0], line_times=[45_000], **waited)
    assert waits(bench.history, bench.clock.now + 1) == {
        "/all": 120,
        "/all//a": 70,
        "/all//a/main": 70,
        "/all//a/main/work": 70,
        "/all/main": 20,
        "/all/main/work": 20,
        "/all/(handoff)": 5,
        "/all/(other)": 25,
    }


def test_a_row_without_a_line_number_keeps_its_file() -> None:
    assert frame_of("f", "/app.py:7") == Frame("f", "/app.py", 7)
    assert frame_of("f", "/app.py") == Frame("f", "/app.py", 0)
    assert frame_of("f", "/a:b.py") == Frame("f", "/a:b.py", 0)
    assert frame_of("(handoff)", "") == Frame("(handoff)", "", 0)


def test_equal_stacks_of_processes_and_times_are_one(bench: Bench) -> None:
    bench.run(1, (1, 2), **NAMED, **WAITED)
    # After this time there are rows of minutes and of groups.
    bench.run(400, (1, 2), **WAITED)
    bench.settle()
    assert waits(bench.history, bench.clock.now + 1) == times(802)


def test_stacks_are_there_after_a_restart_and_from_another_process(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.sqlite", Clock()
    first = Bench(path, clock)
    first.run(100, **NAMED, **WAITED)
    first.stop()
    second = Bench(path, clock)
    assert waits(second.history, clock.now + 1) == times(100)
    # The recorder does not know the numbers before the names come again: see `lines`.
    second.run(1, **WAITED)
    assert waits(second.history, clock.now + 1) == {
        **times(100),
        "/all": 7575,
        "/all/(handoff)": 505,
    } | {"/all/(not named yet)": 70}
    second.stop()


def test_a_process_that_reports_lines_alone_has_lines_without_callers(bench: Bench) -> None:
    lines = {name: value for name, value in WAITED.items() if name.startswith("line")}
    bench.run(1, line_names=LINES, **lines)
    assert waits(bench.history, bench.clock.now + 1) == {
        "/all": 75,
        "/all//a": 50,
        "/all//a/(deeper calls not kept)": 50,
        "/all//a/(deeper calls not kept)/work": 50,
        "/all/(deeper calls not kept)": 20,
        "/all/(deeper calls not kept)/work": 20,
        "/all/(handoff)": 5,
    }


def test_names_that_are_gone_leave_their_lines(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_calls, "MAX_CALLS", 0)
    bench.run(1, **NAMED, **WAITED)
    with closing(sqlite3.connect(bench.store.path)) as database, database:
        database.execute("DELETE FROM call WHERE function = 'main'")
    found = waits(bench.history, bench.clock.now + 1)
    assert found["/all"] == 75
    assert found["/all//a/(deeper calls not kept)/work"] == 50


def test_a_store_of_an_earlier_version_is_read_and_gets_the_table(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.sqlite", Clock()
    bench = Bench(path, clock)
    bench.run(1, **NAMED, **WAITED)
    bench.stop()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE call")
    history = History(reader=Reader(str(path)))
    assert waits(history, clock.now + 1)["/all"] == 75
    history.close()
    bench = Bench(path, clock)
    bench.run(1, **NAMED, **WAITED)
    assert waits(bench.history, clock.now + 1) == times(2)
    bench.stop()


def test_an_export_has_the_names(tmp_path: Path) -> None:
    store, target = tmp_path / "store.sqlite", tmp_path / "taken.sqlite"
    bench = Bench(store)
    bench.run(200, **NAMED, **WAITED)
    options = ["--export", target, "--from", str(START + 1), "--to", str(START + 101)]
    assert run_main("telemetry", "--store", store, *options).returncode == 0
    bench.stop()
    history = History(recordings={"taken": open_recording("taken", str(target))})
    found = waits(history, START + 101, Selection(recording="taken"))
    assert found == times(100)
    history.close()


def test_an_export_has_names_of_the_minute_before(tmp_path: Path) -> None:
    """The names are of the day before, and the process ends before it sends them again."""
    store, target = tmp_path / "store.sqlite", tmp_path / "taken.sqlite"
    midnight = (START // stored_calls.DAY_S + 1) * stored_calls.DAY_S
    bench = Bench(store)
    bench.clock.now = midnight - 11
    bench.run(10, **NAMED, **WAITED)
    bench.run(20, **WAITED)
    options = ["--export", target, "--from", str(midnight), "--to", str(midnight + 60)]
    assert run_main("telemetry", "--store", store, *options).returncode == 0
    bench.stop()
    history = History(recordings={"taken": open_recording("taken", str(target))})
    found = waits(history, midnight + 60, Selection(recording="taken"))
    assert found["/all/main/work"] == found["/all"] * 20 / 75 > 0
    history.close()


def test_names_are_bounded_and_those_that_are_named_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_calls, "MAX_CALLS", 50)
    bench = Bench(tmp_path / "store.sqlite")
    for day in range(3):
        generated = [
            {"call_number": 100 + number, "line_function": f"f{day}_{number}"}
            for number in range(40)
        ]
        bench.run(1, calls=[*CALLS, *generated])
        bench.clock.now += 90_000
    bench.store_now()
    with closing(sqlite3.connect(bench.store.path)) as database:
        names = [name for (name,) in database.execute("SELECT function FROM call")]
    assert len(names) == 50
    assert {"main", "work", *(f"f2_{number}" for number in range(40))} <= set(names)
    bench.stop()


def test_ticks_in_memory_do_not_keep_the_names(bench: Bench) -> None:
    """Names have a bound of their own."""
    bench.run(3, **NAMED, **WAITED)
    ticks = bench.recorder.live.ticks(START, bench.clock.now + 1)
    assert [list(tick.calls) for tick in ticks] == [[], [], []]
    assert len(waits(bench.history, bench.clock.now + 1)) == len(ONE_TICK)


def test_what_has_no_code_has_the_names_of_a_profile() -> None:
    numbers = {"line_numbers": [1, 2], "line_times": [1_000, 2_000]}
    datagram = _native.telemetry_encode(TICK, 1, 1, 0.0, numbers)
    record, _ = _native.telemetry_add_holders(
        _native.telemetry_holder_names(), datagram, _native.telemetry_record(datagram)
    )
    names = [row["line_function"] for row in _native.telemetry_read(record)["lines"]]
    assert names == [sides.HANDOFF.function, sides.NOT_RECORDED.function]


def test_any_field_may_be_missing_or_absurd(bench: Bench) -> None:
    absurd: list[dict[str, Any]] = [
        {"calls": [{"call_number": 5, "call_parent": 5, "line_function": "own caller"}]},
        {"calls": [{"line_function": "no number"}, {"call_number": 2**63}]},
        {"stack_numbers": [1, 2, 3], "stack_times": [1]},
        {"stack_numbers": [7], "stack_times": [2**31 - 1]},
    ]
    for fields in absurd:
        bench.run(1, **fields)
    bench.run(1, **NAMED, **WAITED)
    assert waits(bench.history, bench.clock.now + 1) == ONE_TICK
