"""The measurements of a range depend neither on the time of the query nor on living processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from ticks import START, Bench

from headway.recorder.query.measuring import measure, measure_now
from headway.recorder.query.query import Range
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
