"""The common part of ccbench's three experiments: their rows, and the programs that they run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from launch import environment, execute

from headway.errors import CommandError
from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway.programs import interpreters
from headway_lab.experiment import Choice, Row
from headway_lab.measured.bandwidth import Bandwidth
from headway_lab.measured.ccbench import WORKLOADS, WorkloadExperiment, tables_by_threads
from headway_lab.measured.latency import Latency
from headway_lab.measured.throughput import Throughput
from headway_lab.setting import PROGRAMS

GIL_BUILD = interpreters.this()._replace(free_threading=False, version="3.13.0")
FREE_BUILD = GIL_BUILD._replace(path="/free/python", free_threading=True)
CHOICE = Choice(GIL_BUILD, policies=(STOCK, "priority", "deadline"))
EXPERIMENTS = [Throughput(), Latency(), Bandwidth()]


def parameters(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    """Of the rows that can be measured, each combination once."""
    found = [tuple(row.parameters[name] for name in names) for row in rows if not row.left_out]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_policies_are_measured_at_the_default_interval_and_stock_at_all(
    experiment: WorkloadExperiment,
) -> None:
    rows = experiment.rows(CHOICE)
    assert parameters(rows, "policy", "switch_interval") == [
        *((STOCK, interval_s) for interval_s in experiment.intervals_s),
        ("priority", 0.005),
        ("deadline", 0.005),
    ]
    named = [tuple(row.parameters.items()) for row in rows]
    assert len(set(named)) == len(named)
    for row in rows:
        policy = row.parameters["policy"]
        assert row.setting.policy == (None if policy == STOCK else policy)
        assert row.setting.switch_interval_s == row.parameters.get("switch_interval", 0.005)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_quick_has_few_rows_and_every_policy(experiment: WorkloadExperiment) -> None:
    rows = [row for row in experiment.rows(replace(CHOICE, quick=True)) if not row.left_out]
    assert 5 <= len(rows) <= 9
    assert {row.parameters["policy"] for row in rows} == {STOCK, "priority", "deadline"}


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_rows_are_those_that_were_asked_for(experiment: WorkloadExperiment) -> None:
    asked = Choice(GIL_BUILD, policies=("priority",), switch_intervals_s=(0.002, 0.1), threads=(3,))
    rows = experiment.rows(replace(asked, workloads=("zlib",)))
    names = ("policy", "switch_interval", "workload", experiment.threads_are)
    assert parameters(rows, *names) == [
        ("priority", 0.002, "zlib", 3),
        ("priority", 0.1, "zlib", 3),
    ]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_rows_without_a_gil_need_a_free_threaded_build(experiment: WorkloadExperiment) -> None:
    left_out = [row for row in experiment.rows(CHOICE) if row.left_out]
    assert [row.parameters for row in left_out] == [{"policy": STOCK, "mode": "free-threaded"}]
    assert left_out[0].left_out == "CPython 3.13.0 is no free-threaded build (--free-threaded)"
    rows = experiment.rows(replace(CHOICE, free_threaded=FREE_BUILD))
    free = [row for row in rows if row.parameters["mode"] == "free-threaded"]
    assert {row.parameters["workload"] for row in free} == set(experiment.workloads)
    assert {row.setting.command("-c", "")[:3] == ["/free/python", "-X", "gil=0"] for row in free}
    assert not any(row.left_out for row in rows)
    # A policy alone is not compared with what has no GIL to schedule.
    rows = experiment.rows(replace(CHOICE, policies=("priority",), free_threaded=FREE_BUILD))
    assert {row.parameters["mode"] for row in rows} == {"threads"}


def test_no_thread_computes_nothing() -> None:
    with pytest.raises(CommandError, match="--threads 0: throughput takes from 1 on") as said:
        Throughput().rows(replace(CHOICE, threads=(0,)))
    assert said.value.exit_code == 2
    rows = Throughput().rows(replace(CHOICE, threads=(0, 2)))
    assert parameters(rows, "threads") == [(2,)]
    assert parameters(Latency().rows(replace(CHOICE, threads=(0,))), "cpu_threads") == [(0,)]


def test_tables_have_ratios_of_the_same_rounds() -> None:
    def row(threads: int, *values: float) -> Result:
        schedule = {"policy": STOCK, "switch_interval": 0.005, "mode": "threads"}
        result = Result({**schedule, "workload": "A", "threads": threads})
        result.values = list(values)
        return result

    # The machine became half as fast from one round to the next.
    rows = [row(1, 400, 200, 100), row(2, 600, 300, 150), row(4)]
    left_out = Result({"policy": STOCK, "mode": "free-threaded"}, left_out="there is none")
    results = Results("throughput", "calls/s", [*rows, left_out], {})
    calls, relative = tables_by_threads(results, "threads", "calls a second", 1)
    names = ["workload", "schedule"]
    assert list(calls.headings) == [*names, "1 thread", "2 threads", "4 threads"]
    assert calls.note == "A: Pi calculation (Python)"
    (measured,), (ratios,) = calls.rows, relative.rows
    assert [cell.text for cell in measured] == ["A", "stock 5 ms", "", "", "not measured"]
    assert [cell.value for cell in measured[2:]] == [200, 300, None]
    assert all(cell.unstable for cell in measured[2:4])
    assert [cell.value for cell in ratios[2:]] == [1.0, 1.5, None]
    assert (ratios[3].low, ratios[3].high) == (1.5, 1.5)


def said_by(code: str, *arguments: str, told: str = "") -> dict[str, Any]:
    """The last that a piece of a program says, in the programs' folder."""
    command = [sys.executable, "-c", code, *arguments]
    result = execute(command, env=environment(PYTHONPATH=str(PROGRAMS)), input=told)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("computation", "1", "A", "0.25"),
        ("ping_server", "A", "1", "0.25"),
        ("packet_server", "A", "1", "0.25"),
    ],
    ids=lambda words: str(words[0]),
)
def test_stock_has_the_switch_interval_that_a_row_says(words: tuple[str, ...]) -> None:
    code = (
        "import computation, importlib, sys\n"
        "computation.measure = lambda *_: {'interval_s': sys.getswitchinterval()}\n"
        "importlib.import_module(sys.argv.pop(1)).main()\n"
    )
    assert said_by(code, *words, told="0 0\n")["interval_s"] == 0.25


def test_workloads_do_what_they_are_named_for() -> None:
    code = (
        "import bz2, hashlib, json\n"
        "import workloads as w\n"
        "assert bz2.decompress(bz2.compress(w.BZ2_DATA)) == w.BZ2_DATA\n"
        "print(json.dumps({'pi': w.pi_digits(), 'defs': w.find_definitions(),\n"
        "    'bz2': w.compress(), 'sha1': w.digest().hex(), 'zlib': w.compress_and_restore(),\n"
        "    'names': list(w.WORKLOADS), 'sha1_bytes': len(w.SHA1_DATA)}))\n"
    )
    found = said_by(code)
    assert found["pi"] == "31415926535897932384626433832795028841971693993751"
    assert found["defs"] == 800  # a def and a lambda a line
    assert 0 < found["bz2"] < 6_000
    assert len(found["sha1"]) == 40
    assert found["sha1_bytes"] == 150_000
    assert found["zlib"] == 15_000
    assert found["names"] == list(WORKLOADS)
