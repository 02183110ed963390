"""`bandwidth`: what made-up results say, and short real measurements."""

from __future__ import annotations

import pytest

from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway.programs.interpreters import this
from headway_lab.experiment import Choice
from headway_lab.measured.bandwidth import Bandwidth


def made(**packets_per_s: tuple[float, float]) -> Results:
    """Beside no thread and beside two, by policy."""
    rows = []
    for policy, pair in packets_per_s.items():
        for cpu_threads, value in zip((0, 2), pair, strict=True):
            schedule = {"policy": policy, "switch_interval": 0.005, "mode": "threads"}
            row = Result({**schedule, "workload": "A", "cpu_threads": cpu_threads})
            row.values = [value] * 3
            rows.append(row)
    return Results("bandwidth", "packets/s", rows, {"cpus": 2})


@pytest.mark.parametrize(("packets_per_s", "agrees"), [(200.0, True), (9_000.0, False)])
def test_what_computing_threads_leave_of_stocks(packets_per_s: float, agrees: bool) -> None:
    (statement,) = Bandwidth().statements(made(stock=(20_000, packets_per_s)))
    assert statement.text == "stock, beside 2 A threads: packets/s, of those beside none"
    assert statement.value == pytest.approx(packets_per_s / 20_000)
    assert statement.agrees is agrees


@pytest.mark.parametrize(("packets_per_s", "agrees"), [(8_000.0, True), (300.0, False)])
def test_what_a_policy_brings(packets_per_s: float, agrees: bool) -> None:
    results = made(stock=(20_000, 200), priority=(20_000, packets_per_s))
    _, statement = Bandwidth().statements(results)
    assert statement.text == "priority, beside 2 A threads: packets/s, of stock's"
    assert statement.value == pytest.approx(packets_per_s / 200)
    assert statement.agrees is agrees


def test_cpythons_own_rule_is_not_expected_to_bring_anything() -> None:
    results = made(stock=(20_000, 200), interval=(20_000, 200))
    assert len(Bandwidth().statements(results)) == 1


def test_a_chart_has_shares_by_threads() -> None:
    (chart,) = Bandwidth().charts(made(stock=(20_000, 200), priority=(10_000, 5_000)))
    assert [line.name for line in chart.series] == ["stock 5 ms", "priority 5 ms"]
    assert [point[:2] for point in chart.series[1].points] == [(0.0, 1.0), (2.0, 0.5)]


@pytest.mark.slow("runs an experiment")
def test_packets_come_back() -> None:
    experiment = Bandwidth()
    choice = Choice(this(), threads=(0, 1), seconds=0.1, switch_intervals_s=(0.005,))
    rows = [row for row in experiment.rows(choice) if not row.left_out]
    assert {row.parameters["policy"] for row in rows} == {STOCK}
    for row in rows:
        assert experiment.measure(row, choice, {}).value > 0
