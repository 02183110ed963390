"""`latency`: ccbench's second test, the time that UDP events wait for their thread beside others.

ccbench sends 20 events and shows their average in whole milliseconds. Here a row has thousands of
events, and their percentiles.
"""

from __future__ import annotations

import statistics

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Result, Results
from headway.output.table import Cell, Chart, Series, Table, cell_of
from headway.recorder.records.histogram import Histogram
from headway_lab.experiment import Choice, Measured, Row
from headway_lab.histogram import NS, histogram_of, upper_bound_ns
from headway_lab.measured.ccbench import (
    FREE_THREADED,
    KEEP_GIL,
    SWIFT_POLICIES,
    THREADS,
    WorkloadExperiment,
    groups,
    legend,
    numbered,
    schedule_of,
)
from headway_lab.measured.pings import MS, NEAR_MULTIPLE, figures_of, waits
from headway_lab.setting import Setting, program

QUICK_SECONDS = 0.4
# The number of pings for a value, if the waits are as long as expected and the time allows.
PINGS = 400
MEAN_PAUSE_S = 0.001
LEAST_SECONDS, MOST_SECONDS = 1.0, 10.0

VALUE = "p99_ms"
COLUMNS = ("pings", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms", "at_multiples")
LEAST_AT_MULTIPLES = 0.5


class Latency(WorkloadExperiment):
    name = "latency"
    unit = "ms"
    summary = "ccbench: how long UDP events wait, with CPU-bound threads"
    shows = (
        "A client sends UDP packets at odd moments, and a thread notes how long each took to reach "
        "it, while other threads of that process compute. If these keep the GIL, a packet of "
        "stock's waits a switch interval, or several; under a policy that prefers I/O it waits for "
        "nothing but a call of C code that cannot be preempted."
    )
    higher_is_better = False
    threads_are = "cpu_threads"
    least_threads = 0
    workloads = ("A", "B", "C")
    quick_workloads = ("A", "B")
    threads = (0, 1, 2, 4)
    quick_threads = (0, 1)
    intervals_s = (0.005, 0.001)

    def calibrate(self, choice: Choice) -> Parameters:
        """Also measures the duration of a call of each workload, which bounds the effect of a
        policy."""
        workloads = self._workloads(choice)
        calls_ms = {each: call_s(choice.setting(), each) * MS for each in workloads}
        return {**super().calibrate(choice), "call_ms": calls_ms}

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        seconds = choice.seconds or (QUICK_SECONDS if choice.quick else long_enough_s(row))
        workload, cpu_threads = row.parameters["workload"], row.parameters["cpu_threads"]
        waits_s = waits(row.setting, workload, cpu_threads, seconds)
        figures = figures_of(waits_s, row.parameters.get("switch_interval"))
        return Measured(figures[VALUE], figures, waits_s)

    def tables(self, results: Results) -> list[Table]:
        rows = [
            [
                Cell(text=workload),
                Cell(text=schedule),
                Cell(text=str(result.parameters["cpu_threads"])),
                *cells_of(result),
            ]
            for (workload, schedule), group in groups(results).items()
            for result in group
        ]
        headings = ["workload", "schedule", "CPU threads", *map(heading, COLUMNS)]
        note = (
            f"{legend(results)}. At multiples: the share of waits of an interval or longer that "
            f"end within {NEAR_MULTIPLE:g} intervals above a multiple of it; by chance, as much."
        )
        title = "wait for the thread, ms: medians of each value's percentiles"
        return [Table(title, headings, rows, 3, note)]

    def charts(self, results: Results) -> list[Chart]:
        """Three charts for each workload: the distribution of waits beside the most threads, by
        schedule; that beside one thread of stock, which shows the multiples of the interval; and
        the tail by the number of threads."""
        threads = self.most_threads(results)
        charts = []
        for workload in results.distinct("workload"):
            rows = results.where(workload=workload)
            for count in sorted({1, threads} & set(rows.distinct("cpu_threads"))):
                title = f"waits beside {numbered(count, 'threads')} of workload {workload}"
                beside = rows.where(cpu_threads=count)
                charts.append(distribution(title, beside))
            title = f"99th percentile of the wait, by threads of workload {workload}"
            series = [
                Series(schedule, tail_points(group))
                for (_, schedule), group in groups(rows).items()
            ]
            series = [each for each in series if len(each.points) > 1]
            charts.append(Chart(title, "CPU threads", "wait (s)", series, log_y=True))
        return [chart for chart in charts if chart.series]

    def statements(self, results: Results) -> list[Statement]:
        rows = results.where(mode=THREADS)
        return [
            *gathers_at_multiples(rows.where(policy=STOCK, workload="A", cpu_threads=1)),
            *milliseconds_beside_b(
                rows.measured(
                    policy=STOCK,
                    workload="B",
                    cpu_threads=1,
                    switch_interval=DEFAULT_SWITCH_INTERVAL_S,
                )
            ),
            *within_a_millisecond(rows.where(switch_interval=DEFAULT_SWITCH_INTERVAL_S)),
            *without_gil(results.where(mode=FREE_THREADED, workload="A", cpu_threads=1)),
            *within_a_call(rows.where(switch_interval=DEFAULT_SWITCH_INTERVAL_S)),
        ]


def gathers_at_multiples(results: Results) -> list[Statement]:
    """In rows beside one thread, by switch interval."""
    statements = []
    for result in results:
        if not result.values:
            continue
        interval_ms = result.parameters["switch_interval"] * MS
        name = f"stock {interval_ms:g} ms, beside one A thread"
        text = f"{name}: median wait, in switch intervals"
        statements.append(Statement(text, result.median("p50_ms") / interval_ms, 0.9, 1.5))
        if "at_multiples" in result.figures:
            share = result.median("at_multiples")
            text = f"{name}: share of the waits that end just above a multiple of the interval"
            why = "timers of the kernel and other processes add to a wait"
            statements.append(Statement(text, share, LEAST_AT_MULTIPLES, why=why))
    return statements


def milliseconds_beside_b(result: Result | None) -> list[Statement]:
    if result is None:
        return []
    text = "stock 5 ms, beside one B thread: mean wait in ms, a couple and not almost a second"
    return [Statement(text, result.median("mean_ms"), 0.1, 20)]


def within_a_millisecond(results: Results) -> list[Statement]:
    """In rows beside pure Python, with any number of threads."""
    statements = []
    for policy in results.distinct("policy"):
        beside_a = results.where(policy=policy, workload="A")
        tails = [
            each.median() for each in beside_a if each.values and each.parameters["cpu_threads"]
        ]
        if policy in SWIFT_POLICIES and tails:
            text = f"{policy}, beside A threads: the longest p99 in ms"
            why = "a thread to which the GIL goes may yet wait for a processor that others have"
            statements.append(Statement(text, max(tails), high=1.0, why=why))
    return statements


def without_gil(results: Results) -> list[Statement]:
    return [
        Statement(
            "free-threaded, beside one A thread: median wait in ms",
            result.median("p50_ms"),
            high=1.0,
        )
        for result in results
        if result.values
    ]


def within_a_call(results: Results) -> list[Statement]:
    statements = []
    call_ms = results.calibration.get("call_ms", {}).get("B")
    for policy in results.distinct("policy"):
        result = results.measured(policy=policy, workload="B", cpu_threads=1)
        if policy in SWIFT_POLICIES and result and call_ms:
            text = f"{policy}, beside one B thread: p99 in calls of B, which nothing preempts"
            why = "calls take longer than the calibration's where the machine has more to do"
            calls = result.median() / call_ms
            statements.append(Statement(text, calls, high=1.5, why=why))
    return statements


def call_s(setting: Setting, workload: str) -> float:
    """The median duration of a call."""
    with program(setting, "workloads", workload) as alone:
        calls_s: list[float] = alone.answer()["calls_s"]
    return statistics.median(calls_s)


def long_enough_s(row: Row) -> float:
    """The time for PINGS pings, if each waits for a switch interval of every thread that keeps the
    GIL."""
    parameters = row.parameters
    wait_s = 0.0
    if parameters["policy"] == STOCK and parameters["workload"] in KEEP_GIL:
        wait_s = parameters.get("switch_interval", 0.0) * parameters["cpu_threads"]
    return min(MOST_SECONDS, max(LEAST_SECONDS, PINGS * (MEAN_PAUSE_S + wait_s)))


def heading(figure: str) -> str:
    return figure.removesuffix("_ms").replace("_", " ")


def cells_of(result: Result) -> list[Cell]:
    if not result.values:
        return [cell_of(result), *(Cell() for _ in COLUMNS[1:])]
    return [cell_of(result, "" if figure == VALUE else figure) for figure in COLUMNS]


def distribution(title: str, results: Results) -> Chart:
    """The shares of all waits by bucket of the histogram."""
    series = [
        Series(schedule_of(result), share_points(histogram))
        for result in results
        if (histogram := histogram_of(result))
    ]
    return Chart(
        title,
        "wait (s)",
        "share of waits",
        series,
        log_x=True,
        multiples_of=DEFAULT_SWITCH_INTERVAL_S,
    )


def share_points(histogram: Histogram) -> list[tuple[float, float, float, float]]:
    """Points at the upper bounds of buckets. Empty buckets, which a histogram leaves out, are 0."""
    shares: dict[int, float] = {}
    for bound_s, count in histogram["buckets"]:
        bound_ns = round(bound_s * NS)
        while shares and (between_ns := upper_bound_ns(max(shares))) < bound_ns:
            shares[between_ns] = 0.0
        shares[bound_ns] = count / histogram["count"]
    return [(bound_ns / NS, share, share, share) for bound_ns, share in shares.items()]


def tail_points(group: Results) -> list[tuple[float, float, float, float]]:
    points = []
    for result in group:
        if found := result.interval():
            threads = float(result.parameters["cpu_threads"])
            points.append((threads, found.median / MS, found.low / MS, found.high / MS))
    return points
