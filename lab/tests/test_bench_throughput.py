"""`throughput`: what made-up results say, and one short real measurement of each workload."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway.programs.interpreters import this
from headway.programs.processes import ProgramError
from headway_lab.experiment import Choice
from headway_lab.measured import throughput
from headway_lab.measured.ccbench import WORKLOADS
from headway_lab.measured.throughput import Throughput

CPUS = 4


def made(**calls: tuple[float, float]) -> Results:
    """Calls a second of one thread and of four, by schedule and workload: stock_A, free_A."""
    rows = []
    for name, pair in calls.items():
        policy, _, workload = name.partition("_")
        schedule = {"policy": policy, "switch_interval": 0.005, "mode": "threads"}
        if policy == "free":
            schedule = {"policy": STOCK, "mode": "free-threaded"}
        for threads, value in zip((1, 4), pair, strict=True):
            row = Result({**schedule, "workload": workload, "threads": threads})
            row.values = [value] * 3
            rows.append(row)
    return Results("throughput", "calls/s", rows, {"cpus": CPUS})


@pytest.mark.parametrize(
    ("calls", "text", "value", "agrees"),
    [
        ({"stock_A": (100, 98)}, "stock, workload A: ", 0.98, True),
        ({"stock_A": (100, 180)}, "stock, workload A: ", 1.8, False),
        ({"stock_A": (100, 40)}, "stock, workload A: ", 0.4, False),
        ({"stock_B": (100, 98)}, "stock, workload B: ", 0.98, True),
        ({"stock_C": (100, 390)}, "stock, workload C: ", 3.9, True),
        ({"stock_C": (100, 110)}, "stock, workload C: ", 1.1, False),
        ({"stock_sha1": (100, 300)}, "stock, workload sha1: ", 3.0, True),
        ({"stock_zlib": (100, 100)}, "stock, workload zlib: ", 1.0, False),
        ({"free_A": (80, 300)}, "free-threaded, workload A: ", 3.75, True),
        ({"free_A": (80, 80)}, "free-threaded, workload A: ", 1.0, False),
    ],
)
def test_what_threads_bring(
    calls: dict[str, tuple[float, float]], text: str, value: float, agrees: bool
) -> None:
    (statement,) = Throughput().statements(made(**calls))
    assert statement.text.startswith(f"{text}calls/s of 4 threads")
    assert statement.value == pytest.approx(value)
    assert statement.agrees is agrees


@pytest.mark.parametrize(("calls_per_s", "agrees"), [(99.0, True), (60.0, False)])
def test_what_a_policy_costs(calls_per_s: float, agrees: bool) -> None:
    results = made(stock_A=(100, 100), priority_A=(100, calls_per_s))
    *_, statement = Throughput().statements(results)
    assert statement.text == "priority, workload A: calls/s of 4 threads, of stock's"
    assert statement.value == pytest.approx(calls_per_s / 100)
    assert statement.agrees is agrees


def test_a_chart_has_a_line_for_each_workload() -> None:
    results = made(stock_A=(100, 98), stock_C=(10, 35), priority_A=(100, 99))
    stock, priority = Throughput().charts(results)
    assert [line.name[0] for line in stock.series] == ["A", "C"]
    assert [point[:2] for point in stock.series[1].points] == [(1.0, 1.0), (4.0, 3.5)]
    assert priority.title.startswith("priority 5 ms: ")


def test_nothing_is_said_of_what_was_not_measured() -> None:
    results = made(stock_A=(100, 98), priority_A=(100, 98))
    for row in results:
        row.values = []
    assert Throughput().statements(results) == []
    assert Throughput().charts(results) == []
    assert Throughput().statements(Results("throughput", "calls/s", [], {})) == []


@pytest.mark.slow("runs an experiment")
def test_every_workload_is_called() -> None:
    experiment = Throughput()
    choice = Choice(this(), threads=(1,), workloads=tuple(WORKLOADS), seconds=0.3)
    rows = [row for row in experiment.rows(choice) if not row.left_out]
    assert [row.parameters["workload"] for row in rows if row.parameters["mode"] == "threads"] == (
        list(WORKLOADS)
    )
    for row in rows:
        assert experiment.measure(row, choice, {}).value > 0


def test_a_window_too_short_for_a_call_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """ccbench's percentages would be of nothing."""
    computing = SimpleNamespace(answer=lambda: {"work_per_s": 0.0}, measure=lambda _: None)
    monkeypatch.setattr(throughput, "program", lambda *_: nullcontext(computing))
    choice = Choice(this(), threads=(1,), workloads=("C",), seconds=0.0001)
    row, *_ = Throughput().rows(choice)
    with pytest.raises(ProgramError, match=r"under stock 5 ms ended no call of C in 0\.0001 s"):
        Throughput().measure(row, choice, {})


@pytest.mark.slow("runs an experiment")
def test_a_window_is_as_long_however_late_it_begins() -> None:
    # Each other thread has the GIL for an interval first, so the measuring thread gets it too late.
    choice = Choice(this(), threads=(4,), workloads=("A",), seconds=0.1, switch_intervals_s=(0.1,))
    row, *_ = Throughput().rows(choice)
    assert Throughput().measure(row, choice, {}).value > 0
