"""The recordings that `headway simulate --from` accepts, and its messages about other files."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from made_stores import START, spread, store, tick

from headway.errors import CommandError
from headway_lab.simulated import recording
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.fitting import demand_of, lean_of, page_of
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.prediction import check_demand, drawn, predict
from headway_lab.simulated.recording import Recording, Unfit

SECONDS = 12


def recorded(path: Path, **fields: Any) -> Recording:
    found = recording.read(store(path / "it.sqlite", (tick(n, **fields) for n in range(SECONDS))))
    assert isinstance(found, Recording)
    return found


def test_a_steady_load_is_read_without_its_ends(tmp_path: Path) -> None:
    ticks = [tick(n, requests=40) for n in (0, 1)]
    ticks += [tick(n, pid) for n in range(2, 12) for pid in (100, 200)]
    ticks += [tick(n, requests=0) for n in (12, 13)]
    found = recording.read(store(tmp_path / "it.sqlite", ticks))
    assert isinstance(found, Recording)
    assert (found.name, found.policy, found.switch_interval_s, found.cores) == (
        "2x2",
        "interval",
        0.005,
        2,
    )
    # The first report under load reaches into the time before it.
    assert [len(worker.ticks) for worker in found.workers] == [8, 8]
    assert all(worker.record["request_count"] == 800 for worker in found.workers)


def refused(path: Path, *datagrams: bytes) -> str:
    with pytest.raises(Unfit) as error:
        recording.read(store(path / "it.sqlite", datagrams))
    assert error.value.exit_code == 1
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gil_mode": "disabled"}, "free-threaded"),
        ({"gil_wait_time_histogram": None}, "no waits for the GIL were measured"),
        ({"headway_version": None, "mod_wsgi_version": "6.0.2"}, "no waits for the GIL"),
        ({"requests": 10}, "served 100 requests"),
        ({"policy": None}, "does not say what was configured"),
        (
            {"cgroup_periods": 10, "cgroup_throttled_periods": 5},
            "the cgroup's CPU limit stopped its processes",
        ),
    ],
)
def test_what_was_not_measured_or_hindered_is_refused(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    assert said in refused(tmp_path, *(tick(n, **fields) for n in range(SECONDS)))


def test_work_beside_requests_is_refused(tmp_path: Path) -> None:
    gils = [
        {
            "gil_name": "main",
            "gil_wall": 1.0,
            "gil_held": 0.9,
            "gil_takes": 300,
            "gil_wait": spread(2.0, count=100),
            "gil_hold": spread(3.0, count=300),
        }
    ]
    said = refused(tmp_path, *(tick(n, gils=gils) for n in range(SECONDS)))
    assert "threads that served no request held the GIL of process 100 for 67%" in said


def test_several_groups_are_named(tmp_path: Path) -> None:
    ticks = [
        tick(n, pid, process_group=group)
        for n in range(SECONDS)
        for pid, group in ((100, "shop"), (200, "api"))
    ]
    assert "2 process groups are in it (api, shop)" in refused(tmp_path, *ticks)


def test_several_configurations_are_named(tmp_path: Path) -> None:
    ticks = [tick(n, switch_interval=0.005 if n < 6 else 0.002) for n in range(SECONDS)]
    said = refused(tmp_path, *ticks)
    assert "several configurations" in said
    assert "2 ms and 5 ms" in said
    assert "headway telemetry --export" in said


def test_processes_that_follow_each_other_are_refused(tmp_path: Path) -> None:
    ticks = [tick(n, 100 if n < 10 else 200) for n in range(20)]
    assert refused(tmp_path, *ticks)


def test_another_load_half_way_is_refused(tmp_path: Path) -> None:
    ticks = [tick(n, requests=80 if n < 8 else 130) for n in range(16)]
    assert "the load changed from 80 to 130 requests/s" in refused(tmp_path, *ticks)


def test_processes_without_requests_are_refused(tmp_path: Path) -> None:
    assert "reported requests" in refused(tmp_path, *(tick(n, requests=0) for n in range(5)))


@pytest.mark.parametrize("content", [b"", b"hello", b"{}", b'{"schema": 1}'])
def test_what_is_no_recording_is_refused_as_usage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(CommandError, match=r"neither a store .* nor a report") as error:
        recording.read(str(path))
    assert error.value.exit_code == 2


def test_a_missing_file_and_another_database_are_refused_as_usage(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no such file") as error:
        recording.read(str(tmp_path / "none"))
    assert error.value.exit_code == 2
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE it (one)")
    other.commit()
    other.close()
    with pytest.raises(CommandError, match="another program") as error:
        recording.read(str(tmp_path / "other.sqlite"))
    assert error.value.exit_code == 2


# Of ten requests three lost their core for 2 ms while they held the GIL.
LOST = 2.0


def test_work_that_the_clock_ends_is_told_by_its_cpu_time(tmp_path: Path) -> None:
    found = recorded(tmp_path, held=(3.0,) * 10, cpu=(3.0,) * 7 + (3.0 - LOST,) * 3)
    _, lean = drawn(found, 1, 8)
    assert lean.is_known
    assert lean.value > 0


def test_fixed_work_is_told_by_its_time_with_the_gil(tmp_path: Path) -> None:
    # Most lost their core, some did not: the GIL was held for longer, and the CPU time stayed.
    found = recorded(tmp_path, held=(3.0,) * 4 + (3.0 + LOST,) * 6, cpu=(3.0,) * 10)
    _, lean = drawn(found, 1, 8)
    assert lean.is_known
    assert lean.value < 0


def test_requests_that_are_unlike_each_other_tell_nothing(tmp_path: Path) -> None:
    """Nobody lost a core, so both ways look alike."""
    unlike = (1.0, 2.0, 3.0, 4.0, 5.0)
    found = recorded(tmp_path, held=unlike, cpu=unlike)
    assert not drawn(found, 1, 8)[1].is_known


def test_short_requests_tell_nothing(tmp_path: Path) -> None:
    """Their CPU times are not read one by one."""
    found = recorded(tmp_path, held=(0.3,), cpu=(0.3, 0.1))
    assert not lean_of([[worker.record for worker in found.workers]] * 4).is_known


def test_a_page_has_its_bursts_and_its_times_away(tmp_path: Path) -> None:
    found = recorded(tmp_path)
    page = page_of(found.workers[0].record)
    assert page.away_s == pytest.approx(0.001, rel=0.1)
    assert len(page.shares) == 2
    assert page.shares[0] == pytest.approx(3 / 3.01, rel=0.05)
    assert page.work_s[50] == pytest.approx(0.003, rel=0.05)


def test_clients_that_keep_their_connections_are_a_closed_loop(tmp_path: Path) -> None:
    demand = demand_of(recorded(tmp_path, connections_open=3))
    assert (demand.clients, demand.is_open) == ((3,), False)
    # 3 connections at 100 requests/s: 30 ms from one to the next, 6 ms of them in the server.
    assert demand.think_s == pytest.approx(0.024, rel=0.05)


def test_new_connections_are_an_open_loop(tmp_path: Path) -> None:
    demand = demand_of(recorded(tmp_path, connections_accepted=100))
    assert demand.is_open
    assert demand.total / (demand.think_s + 0.006) == pytest.approx(100, rel=0.05)


def test_more_asked_for_than_served_is_refused(tmp_path: Path) -> None:
    found = recorded(
        tmp_path,
        requests=300,
        connections_accepted=300,
        capacity_utilization=0.97,
        request_threads_busy_time=[0.97, 0.97],
    )
    with pytest.raises(Unfit, match="how much more is not known"):
        check_demand("it", found, demand_of(found))


@pytest.mark.slow("simulates seconds of a server many times")
def test_what_does_not_come_out_as_recorded_is_refused(tmp_path: Path) -> None:
    """A request that is away for 1 ms and waits for 2 ms answers in 6 ms, not in 60."""
    late = spread(60.0, count=100)
    found = recorded(
        tmp_path,
        connections_open=2,
        connections_accepted=100,
        request_time_histogram=late,
        queue_time_histogram=spread(54.0, count=100),
    )
    with pytest.raises(Unfit, match="simulated as recorded it gives"):
        predict("it", found, [], Machine(), Costs(), values=4)


def test_a_report_is_no_recording_of_a_server(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"schema": 1, "time": START}))
    with pytest.raises(CommandError):
        recording.read(str(path))
