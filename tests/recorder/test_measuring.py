"""The measurements of a range depend neither on the time of the query nor on living processes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ticks import START, Bench, tick

from headway.recorder.export.families import collect
from headway.recorder.query.measuring import measure, measure_now
from headway.recorder.query.query import Query, Range
from headway.recorder.site import api
from headway.recorder.store.schema import PROCESS_LEVELS
from headway.recorder.store.selection import EVERYTHING

PIDS = (101, 102)


@pytest.mark.parametrize("later_s", [0, 200])
@pytest.mark.parametrize("seconds", [8, 20, 60])
def test_rates_of_a_short_range_are_the_same_when_its_processes_have_ended(
    tmp_path: Path, seconds: int, later_s: int
) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    try:
        bench.run(100, PIDS)
        bench.settle()
        bench.clock.now += later_s
        summary = measure(bench.history, Range(START + 20, START + 20 + seconds), EVERYTHING)
    finally:
        bench.stop()
    assert summary["config"]["processes"] == len(PIDS)
    assert summary["summary"]["processes"] == pytest.approx(len(PIDS), rel=0.2)
    # Ten requests a second each.
    assert summary["summary"]["rps"] == pytest.approx(20, rel=0.2)


@pytest.mark.parametrize("seconds", [1, 3, 30])
def test_levels_are_right_before_the_recorder_has_listened_for_the_window(seconds: int) -> None:
    """Though the processes are older."""
    bench = Bench(None)
    bench.run(seconds, PIDS)
    total = measure_now(bench.history, bench.clock.now + 0.1, 10.0)["total"]
    bench.stop()
    assert total["config"]["processes"] == len(PIDS)
    assert total["summary"]["processes"] == len(PIDS)
    assert total["summary"]["rss_per_process"] == pytest.approx(50e6, rel=0.1)
    assert total["summary"]["rps"] == pytest.approx(20, rel=0.1)


def test_what_to_try_is_said_of_a_group_and_not_of_one_of_its_processes() -> None:
    full = {
        "gil_mode": "enabled",
        "cpu_cores": 8.0,
        "switch_interval": 0.005,
        "cpu_user_utilization": 0.95,
        "request_threads_maximum": 4,
        "request_threads_busy_time": [1.0] * 4,
        "request_threads_completed": [25] * 4,
        "request_count": 100,
        "request_time_histogram": [(0.04, 100)],
        "application_time_histogram": [(0.04, 100)],
        "gil_held_time_histogram": [(0.0095, 100)],
        "gil_wait_time_histogram": [(0.03, 100)],
        "gils": [
            {
                "gil_name": "main",
                "gil_wall": 1.0,
                "gil_held": 0.95,
                "gil_handoff": 0.05,
                "gil_takes": 200,
                "gil_contended_takes": 200,
                "gil_wait": [(0.015, 200)],
                "gil_hold": [(0.00475, 200)],
            }
        ],
    }
    bench = Bench(None)
    bench.run(20, PIDS, **full)
    found = measure_now(bench.history, bench.clock.now, 10.0)
    (group,) = found["groups"]
    tries = [each["try"] for each in group["verdict"]["advice"]]
    assert any("--processes 8 (now 2)" in each for each in tries), tries
    for process in found["processes"]:
        assert process["verdict"]["name"] == group["verdict"]["name"] == "gil-bound"
        assert process["verdict"]["advice"] == []
    alone = Bench(None)
    alone.run(20, PIDS[:1], **full)
    (process,) = measure_now(alone.history, alone.clock.now, 10.0)["processes"]
    bench.stop()
    alone.stop()
    assert process["verdict"]["advice"]


IDLE = {"process_kind": "run", "cpu_user_utilization": 0.001, "request_threads_maximum": None}
IDLE |= {"request_count": 0, "gil_mode": "enabled", "switch_interval": 0.005, "cpu_cores": 2.0}
IDLE |= {"gils": [{"gil_name": "main", "gil_wall": 1.0, "gil_held": 0.001, "gil_takes": 3}]}
BUSY = IDLE | {
    "cpu_user_utilization": 0.99,
    "gils": [
        {
            "gil_name": "main",
            "gil_wall": 1.0,
            "gil_held": 0.98,
            "gil_handoff": 0.02,
            "gil_takes": 200,
            "gil_contended_takes": 200,
            "gil_wait": [(0.015, 200)],
            "gil_hold": [(0.0049, 200)],
        }
    ],
}


def test_an_idle_parent_hides_no_busy_child(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    parent, child = PIDS
    for second in range(1, 21):
        bench.clock.now += 1
        at = bench.clock.now
        bench.give(tick(parent, second, at, **IDLE), tick(child, second, at, **BUSY))
    bench.settle()
    now = bench.clock.now
    found = measure_now(bench.history, now, 10.0)
    (group,) = found["groups"]
    in_range = measure(bench.history, Range(now - 10, now), EVERYTHING)
    (state,) = (
        sample.labels["headway_verdict"]
        for family in collect(bench.history)
        if family.metric.name == "headway_verdict"
        for sample in family.samples
        if sample.value == 1
    )
    bench.stop()
    for measured in (group, found["total"], in_range):
        assert measured["verdict"]["name"] == "gil-bound", measured["verdict"]
        assert measured["verdict"]["text"].startswith(f"Process {child}: The GIL (main)")
    assert state == "gil-bound"


def test_event_loops_in_time_hide_no_late_one_that_hardly_computes(tmp_path: Path) -> None:
    in_time = IDLE | {
        "cpu_user_utilization": 0.1,
        "loop_iteration_histogram": [(0.0001, 100)],
        "loop_polled": 0.99,
        "loop_late_limit": 0.02,
    }
    late = in_time | {
        "cpu_user_utilization": 0.001,
        "loop_iteration_histogram": [(0.03, 1)],
        "loop_late": 1,
        "loop_late_blocked": 0.03,
    }
    bench = Bench(tmp_path / "store.sqlite")
    for second in range(1, 21):
        bench.clock.now += 1
        at = bench.clock.now
        others = (tick(pid, second, at, **in_time) for pid in range(102, 112))
        bench.give(tick(101, second, at, **late), *others)
    bench.settle()
    now = bench.clock.now
    found = measure_now(bench.history, now, 10.0)
    in_range = measure(bench.history, Range(now - 10, now), EVERYTHING)
    bench.stop()
    for measured in (*found["groups"], found["total"], in_range):
        assert measured["verdict"]["name"] == "late-loop", measured["verdict"]
        assert measured["verdict"]["text"].startswith("Process 101: The event loop")
    names = [each["verdict"]["name"] for each in found["processes"]]
    # The others have too few takes of the GIL for a verdict.
    assert sorted(names) == ["late-loop", *["unknown"] * 10]


def test_full_cores_of_a_group_explain_the_full_gils_of_its_processes(tmp_path: Path) -> None:
    """Each of two processes has half of the one core, and its GIL is in use all the time."""
    shared = BUSY | {"cpu_user_utilization": 0.49, "cpu_cores": 1.0}
    bench = Bench(tmp_path / "store.sqlite")
    bench.run(20, PIDS, **shared)
    bench.settle()
    now = bench.clock.now
    found = measure_now(bench.history, now, 10.0)
    in_range = measure(bench.history, Range(now - 10, now), EVERYTHING)
    bench.stop()
    assert {each["verdict"]["name"] for each in found["processes"]} == {"gil-bound"}
    for measured in (*found["groups"], found["total"], in_range):
        assert measured["verdict"]["name"] == "cpu-bound", measured["verdict"]


RSS = 50_000_000


def give_late(bench: Bench, pid: int, period_s: float) -> None:
    bench.sequence += 1
    bench.give(tick(pid, bench.sequence, bench.clock.now, sample_period=period_s))
    if bench.store is not None:
        bench.store_now()


@pytest.mark.parametrize("late_s", [1.9, 11.0, 67.3, 3000.0])
@pytest.mark.parametrize("step", [1, 10, 60, 300, 3600])
@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("pids", [(), PIDS])
def test_a_late_tick_multiplies_no_level(
    tmp_path: Path, late_s: float, step: int, is_settled: bool, pids: tuple[int, ...]
) -> None:
    """A process that was stopped, or whose recorder was not there, reports the time in one tick."""
    bench = Bench(tmp_path / "store.sqlite")
    bench.run(130, PIDS)
    bench.clock.now += late_s
    for pid in PIDS:
        give_late(bench, pid, late_s)
    bench.run(130, PIDS)
    if is_settled:
        bench.clock.now += 70
        bench.settle()
        bench.clock.now -= 70
    end = bench.clock.now
    steps = min(2000, -(-(end - START) // step))
    query = "&".join(
        [f"from={end - steps * step}", f"to={end}", f"points={steps:.0f}"]
        + [f"pid={pid}" for pid in pids]
    )
    answer = api.series(bench.history, Query(query))
    requests = bench.requests(START, end + 1)
    bench.stop()
    found = [point["summary"] for point in answer["points"] if point["summary"]]
    # Whole steps, and those at the ends.
    assert {summary["processes"] for summary in found[1:-1]} <= {2.0}
    for summary in found:
        assert summary["processes"] <= 2.0
        assert summary["rss_per_process"] == pytest.approx(RSS)
        assert summary["rss"] <= 2 * RSS * 1.001
        assert summary["threads"] <= 4.001
        assert summary["cpu"] <= 0.501
    # It is measured once, wherever it is counted.
    assert requests == (260 + 1) * 2 * 10


def test_a_tick_that_covers_a_day_is_stored_for_its_last_hour(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    bench.clock.now += 86_400
    give_late(bench, PIDS[0], 86_400)
    bench.clock.now += 70
    bench.settle()
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as database:
        (rows,) = database.execute(f"SELECT count(*) FROM {PROCESS_LEVELS[0].table}").fetchone()
    bench.stop()
    assert 350 <= rows <= 361


@pytest.mark.parametrize("late_s", [1.9, 11.0, 600.0])
def test_a_late_tick_is_no_level_of_the_last_seconds(late_s: float) -> None:
    """Neither in `headway top` nor in /metrics."""
    bench = Bench(None)
    bench.run(20, PIDS)
    bench.clock.now += late_s
    give_late(bench, PIDS[0], late_s)
    bench.clock.now += 0.1
    now = measure_now(bench.history, bench.clock.now, 10.0)
    span = Range(bench.clock.now - 10, bench.clock.now)
    measured = measure(bench.history, span, EVERYTHING)
    exported = {
        (family.metric.name, sample.labels["group"]): sample.value
        for family in collect(bench.history)
        for sample in family.samples
        if family.metric.name in ("headway_resident_memory_bytes", "headway_threads")
    }
    bench.stop()
    for each in (now["total"], now["groups"][0], now["processes"][0], measured):
        heard = each["summary"]["processes"]
        assert heard <= 2
        assert each["summary"]["rss"] == pytest.approx(heard * RSS)
        assert each["summary"]["threads"] == pytest.approx(heard * 2)
    assert exported["headway_resident_memory_bytes", "shop"] <= 2 * RSS
    assert exported["headway_threads", "shop"] <= 4


def test_a_tick_that_is_longer_than_the_window() -> None:
    """With --telemetry-interval 60, the last ten seconds have a tick of a minute."""
    bench = Bench(None)
    for _ in range(3):
        bench.clock.now += 60
        bench.sequence += 1
        bench.give(
            tick(
                100,
                bench.sequence,
                bench.clock.now,
                sample_period=60.0,
                telemetry_interval=60.0,
            )
        )
    summary = measure_now(bench.history, bench.clock.now + 0.1, 10.0)["total"]["summary"]
    bench.stop()
    assert (summary["processes"], summary["rss"]) == (1, pytest.approx(RSS))
