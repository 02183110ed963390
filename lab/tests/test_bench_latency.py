"""`latency`: figures and statements of made-up waits, and short real measurements."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from launch import execute

from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway.programs.interpreters import this
from headway.programs.processes import ProgramError
from headway_lab.experiment import Choice, Row
from headway_lab.measured import pings as pings_module
from headway_lab.measured.latency import Latency, long_enough_s
from headway_lab.measured.pings import figures_of
from headway_lab.setting import PROGRAMS, Setting

CALL_MS = 2.0


def row(workload: str, waits_s: list[float], policy: str = STOCK, **more: Any) -> Result:
    schedule = {"policy": policy, "switch_interval": 0.005, "mode": "threads"}
    result = Result({**schedule, "workload": workload, "cpu_threads": 1, **more})
    for name, value in figures_of(waits_s, result.parameters["switch_interval"]).items():
        result.figures[name] = [value] * 3
    result.values = result.figures["p99_ms"]
    result.samples_s = waits_s
    return result


def results(*rows: Result) -> Results:
    return Results("latency", "ms", list(rows), {"cpus": 2, "call_ms": {"B": CALL_MS}})


def test_figures_are_those_of_the_waits() -> None:
    # 90 of one interval and a little, 9 of two, and one of three and a half.
    waits_s = [0.0055] * 90 + [0.0105] * 9 + [0.0175]
    assert figures_of(waits_s, 0.005) == pytest.approx(
        {
            "pings": 100,
            "mean_ms": (90 * 5.5 + 9 * 10.5 + 17.5) / 100,
            "std_ms": 1.8344208895,
            "p50_ms": 5.5,
            "p90_ms": 5.5,
            "p99_ms": 10.5,
            "max_ms": 17.5,
            "at_multiples": 0.99,
        }
    )


def test_what_did_not_wait_an_interval_tells_nothing_of_its_multiples() -> None:
    assert "at_multiples" not in figures_of([0.0001, 0.0049] * 10, 0.005)
    assert "at_multiples" not in figures_of([0.0060] * 10, None)
    assert "at_multiples" not in figures_of([0.0060], 0.005)


@pytest.mark.parametrize(
    ("waits_s", "median", "gathered"),
    [
        ([0.0051] * 8 + [0.0101] * 2, True, True),
        ([0.0052, 0.0082, 0.0093, 0.0094] * 3, False, False),
        ([0.00005] * 11 + [0.0051] * 10, False, True),
    ],
)
def test_waits_that_gather_at_multiples(waits_s: list[float], median: bool, gathered: bool) -> None:
    first, second = Latency().statements(results(row("A", waits_s)))
    assert first.text == "stock 5 ms, beside one A thread: median wait, in switch intervals"
    assert first.agrees is median
    assert "just above a multiple" in second.text
    assert second.agrees is gathered


@pytest.mark.parametrize(("wait_s", "agrees"), [(0.006, True), (0.8, False)])
def test_a_couple_of_milliseconds_beside_b(wait_s: float, agrees: bool) -> None:
    (statement,) = Latency().statements(results(row("B", [wait_s] * 10)))
    assert statement.text.startswith("stock 5 ms, beside one B thread: mean wait in ms")
    assert statement.value == pytest.approx(wait_s * 1e3)
    assert statement.agrees is agrees


@pytest.mark.parametrize(("worst_s", "agrees"), [(0.0009, True), (0.0051, False)])
def test_under_a_policy_the_worst_row_beside_a_decides(worst_s: float, agrees: bool) -> None:
    made = results(
        row("A", [0.0001] * 10, "priority"),
        row("A", [worst_s] * 10, "priority", cpu_threads=4),
        # Not beside a thread, or not under a policy that prefers I/O.
        row("A", [0.5] * 10, "priority", cpu_threads=0),
        row("A", [0.5] * 10, "interval"),
    )
    (statement,) = Latency().statements(made)
    assert statement.text == "priority, beside A threads: the longest p99 in ms"
    assert statement.value == pytest.approx(worst_s * 1e3)
    assert statement.agrees is agrees


@pytest.mark.parametrize(("calls", "agrees"), [(1.1, True), (3.0, False)])
def test_under_a_policy_a_wait_beside_b_is_a_call_at_most(calls: float, agrees: bool) -> None:
    waits_s = [calls * CALL_MS / 1e3] * 10
    (statement,) = Latency().statements(results(row("B", waits_s, "deadline")))
    assert statement.text.startswith("deadline, beside one B thread: p99 in calls of B")
    assert statement.value == pytest.approx(calls)
    assert statement.agrees is agrees


@pytest.mark.parametrize(("wait_s", "agrees"), [(0.00005, True), (0.0051, False)])
def test_without_a_gil_nothing_waits(wait_s: float, agrees: bool) -> None:
    free = row("A", [wait_s] * 10, mode="free-threaded")
    del free.parameters["switch_interval"]
    (statement,) = Latency().statements(results(free))
    assert statement.text.startswith("free-threaded, beside one A thread")
    assert statement.agrees is agrees


def test_a_table_has_percentiles_and_reasons() -> None:
    failed = Result({**row("B", [1.0]).parameters})
    failed.failures = ["ping_server.py under stock 5 ms ended"]
    (table,) = Latency().tables(results(row("A", [0.0055] * 10), failed))
    assert list(table.headings[-4:]) == ["p90", "p99", "max", "at multiples"]
    measured, reason = table.rows
    assert [cell.text for cell in measured[:3]] == ["A", "stock 5 ms", "1"]
    assert [cell.value for cell in measured[3:]] == pytest.approx([10, *[5.5] * 5, 1.0])
    assert [cell.text for cell in reason[:4]] == ["B", "stock 5 ms", "1", *failed.failures]
    assert len(reason) == len(measured)
    assert table.note.startswith("A: Pi calculation (Python); B: regular expression (C). At mult")


def test_charts_show_how_waits_are_distributed() -> None:
    made = results(row("A", [0.0051] * 9 + [0.0102]), row("A", [0.00005] * 10, "priority"))
    waits, *_ = Latency().charts(made)
    assert waits.title == "waits beside 1 thread of workload A"
    assert waits.multiples_of == 0.005
    assert [line.name for line in waits.series] == ["stock 5 ms", "priority 5 ms"]
    (bound_s, share, *_), *between, (last_s, last_share, *_) = waits.series[0].points
    assert 0.0051 < bound_s < 0.0055
    assert 0.0102 < last_s < 0.011
    assert (share, last_share) == (0.9, 0.1)
    # No line is drawn through times that nothing took.
    assert len(between) > 5
    assert {share for _, share, *_ in between} == {0}


def test_rows_that_wait_longer_are_measured_longer() -> None:
    def seconds(**parameters: Any) -> float:
        made = row("A", [0.001], **parameters)
        return long_enough_s(Row(made.parameters, Choice(this()).setting()))

    assert seconds(cpu_threads=0) == seconds(policy="priority", cpu_threads=4)
    assert seconds(cpu_threads=0) < seconds(cpu_threads=1) < seconds(cpu_threads=4)
    assert seconds(switch_interval=10.0) == seconds(switch_interval=5.0)


def test_between_two_pings_the_gil_is_not_dropped() -> None:
    """A call that drops the GIL may have to wait for it while the next ping is on its way."""
    script = (
        "import os, signal, ping_server\n"
        "class Server:\n"
        "    pings = [b'1000 %d' % os.getpid()] * 2\n"
        "    def recv(self, size): return self.pings.pop()\n"
        "told = []\n"
        "signal.signal(signal.SIGUSR1, lambda *_: told.append(len(Server.pings)))\n"
        "pings = []\n"
        "try: ping_server.receive_pings(Server(), pings)\n"
        "except IndexError: print(told, len(pings))\n"
    )
    told = execute([sys.executable, "-c", script], env={"PYTHONPATH": str(PROGRAMS)})
    assert told.stdout == "[1, 0] 2\n", told.stderr


@pytest.mark.parametrize(
    ("pings", "lost", "said"),
    [([], 0, "received no ping$"), ([[1 << 62, 1]], 2, "received 2 pings late or never$")],
)
def test_pings_that_nobody_received_are_no_value(
    monkeypatch: pytest.MonkeyPatch, pings: list[list[int]], lost: int, said: str
) -> None:
    """They would be the longest waits of all."""
    answers = {"ping_server": [{"port": 1}, {"pings": pings}], "ping_client": [{}, {"lost": lost}]}

    def program(_: Setting, script: str, *arguments: str) -> nullcontext[SimpleNamespace]:
        running = iter(answers[script])
        return nullcontext(SimpleNamespace(answer=lambda: next(running), measure=lambda _: None))

    monkeypatch.setattr(pings_module, "program", program)
    with pytest.raises(ProgramError, match=said):
        pings_module.waits(Setting(None, 0.005), "A", 1, 0.1)


@pytest.mark.slow("runs an experiment")
def test_pings_are_received_beside_threads_that_compute() -> None:
    experiment = Latency()
    choice = Choice(
        this(), threads=(0, 1), workloads=("B",), seconds=0.15, switch_intervals_s=(0.005,)
    )
    calibration = experiment.calibrate(choice)
    assert calibration["call_ms"]["B"] > 0
    for each in experiment.rows(choice):
        if each.left_out:
            continue
        found = experiment.measure(each, choice, calibration)
        assert found.value == found.figures["p99_ms"]
        assert found.figures["pings"] == len(found.samples_s) > 0
        ordered = [found.figures[name] for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
        assert ordered == sorted(ordered)
        assert ordered[0] > 0
        assert ordered[-1] == max(found.samples_s) * 1e3
