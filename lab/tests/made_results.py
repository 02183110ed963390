"""Results as experiments bring them, and an experiment that shows them; nothing is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from made_rows import results, row

from headway.output.claim import Statement
from headway.output.results import Parameters, Result, Results
from headway.output.table import Chart, Series, Table, listing
from headway_lab.arrangement import pivot, series_by
from headway_lab.experiment import Choice, Experiment, Measured, Row

METADATA = {
    "headway": "0.1.0",
    "python": "3.13.0",
    "build": "3.13.0 (main, Oct  7 2024, 05:02:14) [GCC 12.2.0]",
    "free_threading": False,
    "debug": False,
    "compiler": "GCC 12.2.0",
    "build_options": "'--enable-optimizations' '--with-lto'",
    "cpu": "AMD EPYC",
    "machine": "x86_64",
    "cpus": 2,
    "kernel": "6.1.0",
    "governor": None,
    "steal": 0.004,
    "load": 0.12,
    "time": "2026-11-22T08:00:00Z",
    "seconds": 754.0,
    "policies": ["stock", "priority"],
    "quick": False,
}


def measured(
    experiment: Experiment,
    choice: Choice,
    value: Callable[[Parameters], float],
    **calibration: Any,
) -> Results:
    """An experiment's own rows, each with three values that `value` makes up of its parameters."""
    found = []
    for each in experiment.rows(choice):
        result = Result(each.parameters, experiment.published(each.parameters), each.left_out)
        result.values = [] if each.left_out else [value(each.parameters)] * 3
        found.append(result)
    return Results(experiment.name, experiment.unit, found, calibration)


def statement(experiment: Experiment, found: Results, words: str) -> Statement:
    """The only one with these words."""
    (one,) = [each for each in experiment.statements(found) if words in each.text]
    return one


class Made(Experiment):
    """Rates of a policy, a switch interval and a number of threads."""

    name = "made"
    unit = "requests/s"
    summary = "requests that nobody made"
    shows = "Nothing is measured here. It shows what a page and a terminal make of results."
    # In front of every text that it makes up.
    prefix = ""

    def rows(self, choice: Choice) -> list[Row]:
        return []

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        raise NotImplementedError

    def published(self, parameters: Parameters) -> float | None:
        return None

    def tables(self, results: Results) -> list[Table]:
        prefix = self.prefix
        pivots = [
            pivot(
                results.where(policy=policy),
                f"{prefix}{policy}: requests/s",
                "switch_interval",
                "threads",
                across_text=lambda count: f"{prefix}{count} threads",
                note=f"{prefix}A note.",
            )
            for policy in results.distinct("policy")
        ]
        names = ["policy", "switch_interval", "threads"]
        figures = {"requests/s": "", f"{prefix}p99 (s)": "p99_s"}
        return [*pivots, listing(results, f"{prefix}row by row", names, figures)]

    def charts(self, results: Results) -> list[Chart]:
        lines = [
            Chart(
                f"{self.prefix}{policy}: by interval",
                "switch interval (s)",
                f"{self.prefix}requests/s",
                series_by(
                    results.where(policy=policy),
                    "threads",
                    "switch_interval",
                    name=lambda count: f"{self.prefix}{count} threads",
                ),
                log_x=True,
                log_y=True,
            )
            for policy in results.distinct("policy")
        ]
        waits = [(place / 1e3, 1.0 + (place % 5 == 0) * 5, 0.9, 6.5) for place in range(1, 30)]
        series = [Series(f"{self.prefix}waits", waits)]
        return [
            *lines,
            Chart(
                f"{self.prefix}waits for the GIL",
                "wait (s)",
                "share (%)",
                series,
                multiples_of=0.005,
            ),
        ]

    def statements(self, results: Results) -> list[Statement]:
        return [
            Statement(f"{self.prefix}a ratio that agrees", 1.02, 0.9, 1.1, "never told"),
            Statement(f"{self.prefix}a ratio that differs", 0.5, 0.9, 1.1, f"{self.prefix}a cause"),
            Statement(f"{self.prefix}a ratio that nobody knows", float("nan"), 0.9),
        ]


def made_results(prefix: str = "") -> Results:
    """Two policies, two intervals, one and two threads: one row is unstable, one was left out, one
    failed, and one failed once."""
    failed = row([], 1_000.0, policy="priority", switch_interval=0.0001, threads=2)
    failed.failures = [f"{prefix}echo_server.py ended", f"{prefix}echo_server.py ended"]
    once = row([210.0, 205.0, 207.0], policy="priority", switch_interval=0.005, threads=2)
    once.failures = [f"{prefix}a deadline passed"]
    tail = {"p99_s": [0.010, 0.011, 0.012]}
    made = results(
        row(
            [100.0, 101.0, 102.0], 90.0, "", tail, policy="stock", switch_interval=0.005, threads=1
        ),
        row([50.0, 70.0, 20.0], 45.0, "", tail, policy="stock", switch_interval=0.005, threads=2),
        row([3_200.0, 3_210.0], 3_000.0, policy="stock", switch_interval=0.0001, threads=1),
        row([], None, f"{prefix}no room", policy="stock", switch_interval=0.0001, threads=2),
        row([205.0, 206.0, 207.0], policy="priority", switch_interval=0.005, threads=1),
        once,
        row([208.0, 209.0, 210.0], policy="priority", switch_interval=0.0001, threads=1),
        failed,
    )
    return made
