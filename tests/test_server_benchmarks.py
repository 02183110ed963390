"""Benchmarks of `headway serve`, cut short: they measure it, and name the peers they miss."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED, environment, python

from headway_lab.setting import python_path

BENCH = Path(__file__).resolve().parent.parent / "bench"
SHORT = ("--rounds", "1", "--seconds", "1")

pytestmark = [
    pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL"),
    pytest.mark.timeout(300),
]


def measures(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.serial(pytest.mark.slow("runs benchmark scripts")(test))


def run(name: str, *options: str | Path, json_file: Path) -> tuple[str, dict[str, Any]]:
    """The output of a benchmark, and its rows by the name of the experiment."""
    result = python(BENCH / f"{name}.py", *SHORT, *options, "--json", json_file, timeout=200)
    assert result.returncode == 0, result.stderr
    experiments = json.loads(json_file.read_text())["experiments"]
    return result.stdout, {each["name"]: each["rows"] for each in experiments}


@measures
def test_idle_connections_are_held_and_answered_again(tmp_path: Path) -> None:
    _, rows = run(
        "server_idle", "--peer", "--connections", "120", json_file=tmp_path / "results.json"
    )
    assert [row["median"] for row in rows["server_idle idle_connections"]] == [120]
    assert [row["median"] for row in rows["server_idle idle_answered_share"]] == [1]
    assert [row["median"] for row in rows["server_idle hello_answered_share"]] == [1]


@measures
def test_each_policy_serves_light_requests_beside_heavy_ones(tmp_path: Path) -> None:
    load = (
        "--peer",
        "--light",
        "20",
        "--heavy",
        "1",
        "--policy",
        "interval",
        "--policy",
        "priority",
    )
    said, rows = run("server_mixed", *load, json_file=tmp_path / "results.json")
    answered = rows["server_mixed light_answered_per_s"]
    assert [row["parameters"]["policy"] for row in answered] == ["interval", "priority"]
    assert all(row["median"] > 0 for row in answered)
    assert "headway serve's default policy is " in said


@measures
def test_a_peer_that_is_not_there_is_named_with_its_reason(tmp_path: Path) -> None:
    peers = tmp_path / "peers"
    (peers / "bin").mkdir(parents=True)
    (peers / "bin" / "python").symlink_to(sys.executable)
    (peers / "bjoern.failed").write_text("ev.h: no such file\n")
    options = ("--peer", "bjoern", "--connections", "1", "--peers-folder", peers)
    said, rows = run("server_idle", *options, json_file=tmp_path / "results.json")
    assert "without bjoern: ev.h: no such file\n" in said
    (row,) = rows["server_idle missing"]
    assert (row["parameters"], row["left_out"]) == ({"missing": "bjoern"}, "ev.h: no such file")


def test_without_peers_nothing_is_started(tmp_path: Path) -> None:
    result = python(BENCH / "server_idle.py", "--peers-folder", tmp_path)
    assert result.returncode == 2
    assert result.stderr == (
        f"bench server_idle: there are no peers in {tmp_path}: run bench/install_peers.py\n"
    )


@measures
@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="an interpreter has its own GIL from 3.12 on"
)
@pytest.mark.skipif(shutil.which("wrk") is None, reason="there is no wrk")
def test_interpreters_are_loaded_and_their_processes_weighed(tmp_path: Path) -> None:
    load = ("--part", "own_gils", "--application", "pages")
    said, rows = run("server_interpreters", *load, json_file=tmp_path / "results.json")
    name = "server_interpreters own_gils"
    served = rows[f"{name} requests_per_s"]
    shapes = [
        tuple(row["parameters"][key] for key in ("processes", "threads", "interpreters"))
        for row in served
    ]
    assert shapes == [(1, 1, 1), (1, 2, 2), (2, 1, 0)]
    assert all(row["median"] > 0 for row in served)
    for kind in ("bytes", "with_supervisor_bytes"):
        shared, whole = rows[f"{name} pss_{kind}"], rows[f"{name} rss_{kind}"]
        assert all(
            0 < pss["median"] <= rss["median"] for pss, rss in zip(shared, whole, strict=True)
        )
    assert rows[f"{name} missing"] == []
    assert "memory (PSS) of two processes'" in said


@pytest.mark.parametrize(
    ("python_path", "complaint"),
    [
        (sys.executable, "not a free-threaded build"),
        ("/nonexistent/python", "there is no /nonexistent/python: "),
        (str(BENCH / "run.py"), "is not a Python that starts: "),
    ],
)
@pytest.mark.skipif(shutil.which("wrk") is None, reason="there is no wrk")
def test_what_is_no_free_threaded_python_is_refused(python_path: str, complaint: str) -> None:
    options = ("--part", "hello_calls", "--free-threaded-python", python_path)
    result = python(BENCH / "server_interpreters.py", *options)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("bench server_interpreters: ")
    assert complaint in line


@measures
@pytest.mark.parametrize(
    ("program", "figures"),
    [
        ("hello_threads.py", {"calls_per_s", "cpu_per_call_s"}),
        ("page_alone.py", {"work_per_s", "cpu_per_work_s"}),
    ],
)
def test_threads_without_a_server_tell_how_much_they_did(program: str, figures: set[str]) -> None:
    begin_ns = time.monotonic_ns() + 1_000_000_000
    window = f"{begin_ns} {begin_ns + 200_000_000}\n"
    beside = environment(PYTHONPATH=python_path())
    result = python(BENCH / "programs" / program, "2", input=window, env=beside)
    assert result.returncode == 0, result.stderr
    ready, answer = map(json.loads, result.stdout.splitlines())
    assert ready == {}
    assert figures <= answer.keys()
    assert all(answer[figure] > 0 for figure in figures)


@measures
def test_what_reporting_costs_is_measured_with_and_without(tmp_path: Path) -> None:
    if shutil.which("wrk") is None:
        pytest.skip("wrk is missing: bench/install_peers.py")
    said, rows = run("telemetry_reporter", json_file=tmp_path / "results.json")
    found = rows["telemetry_reporter requests_per_s"]
    assert [row["parameters"]["telemetry"] for row in found] == [False, True, False, True]
    assert all(row["median"] > 0 for row in found)
    assert "requests/s of those without reports" in said


@measures
def test_the_story_is_recorded_and_compared(tmp_path: Path) -> None:
    if shutil.which("wrk") is None:
        pytest.skip("wrk is missing: bench/install_peers.py")
    options = ("--seconds", "3", "--workload", "deadline")
    said, rows = run("telemetry_story", *options, json_file=tmp_path / "results.json")
    assert [row["parameters"]["threads"] for row in rows["telemetry_story requests_per_s"]] == [
        *(1, 5, 5, 5, 5)
    ]
    # As many processes as there were, however short their stretch was and whoever ran since.
    row = "2 x 5, 5 ms, deadline | 2 x 5, 5 ms, deadline"
    assert f"| deadline workload: {row}" in said
