"""`throughput`: ccbench's first test, computation by one thread and by several."""

from __future__ import annotations

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results
from headway.output.table import Chart, Table
from headway.programs.processes import ProgramError, Window
from headway_lab.experiment import Choice, Measured, Row
from headway_lab.measured.ccbench import (
    FREE_THREADED,
    KEEP_GIL,
    THREADS,
    WORKLOADS,
    WorkloadExperiment,
    groups,
    ratio,
    ratio_series,
    tables_by_threads,
)
from headway_lab.measured.sharing import NO_CORES
from headway_lab.setting import Setting, program

SECONDS = 0.5
QUICK_SECONDS = 0.3
WARM_UP_S = 0.1

# With work that keeps the GIL, more threads gain nothing and lose little.
NO_GAIN = (0.75, 1.15)
# With work that drops the GIL, each further thread gains at least this share of a processor.
LEAST_GAIN_PER_CPU = 0.7
# The least share of stock's throughput that a policy may leave.
LEAST_OF_STOCK = 0.9


class Throughput(WorkloadExperiment):
    name = "throughput"
    unit = "calls/s"
    summary = "ccbench: calls of CPU-bound work a second, by threads"
    shows = (
        "One thread or several call a function over and over: pure Python, C code that keeps the "
        "GIL, and C code that drops it. Only what drops the GIL gets more done with more threads, "
        "as far as there are processors; a policy is to cost none of it."
    )
    threads_are = "threads"
    least_threads = 1
    workloads = ("A", "B", "C", "sha1", "zlib")
    quick_workloads = ("A", "C")

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        seconds = choice.seconds or (QUICK_SECONDS if choice.quick else SECONDS)
        return Measured(
            calls_per_s(row.setting, row.parameters["workload"], row.parameters["threads"], seconds)
        )

    def tables(self, results: Results) -> list[Table]:
        return tables_by_threads(results, "threads", "calls a second", 1)

    def charts(self, results: Results) -> list[Chart]:
        """A chart for each schedule: its workloads, relative to one thread."""
        charts: dict[str, Chart] = {}
        for (workload, schedule), group in groups(results).items():
            name = f"{workload}: {WORKLOADS[workload]}"
            series = ratio_series(name, group, "threads", group.find(threads=1))
            if len(series.points) > 1:
                title = f"{schedule}: calls a second by threads, of one thread's"
                drawn = charts.setdefault(schedule, Chart(title, "threads", "ratio", []))
                charts[schedule] = drawn._replace(series=[*drawn.series, series])
        return list(charts.values())

    def statements(self, results: Results) -> list[Statement]:
        threads, cpus = self.most_threads(results), results.calibration.get("cpus", 1)
        if threads < 2:
            return []
        schedules = {
            "stock": results.where(
                mode=THREADS, policy=STOCK, switch_interval=DEFAULT_SWITCH_INTERVAL_S
            ),
            FREE_THREADED: results.where(mode=FREE_THREADED),
        }
        statements = []
        for schedule, rows in schedules.items():
            for workload in rows.distinct("workload"):
                gain = ratio(
                    rows.find(workload=workload, threads=threads),
                    rows.find(workload=workload, threads=1),
                )
                if gain is None:
                    continue
                text = f"{schedule}, workload {workload}: calls/s of {threads} threads, of one's"
                if schedule == STOCK and workload in KEEP_GIL:
                    statements.append(Statement(f"{text}: no gain", gain, *NO_GAIN))
                elif cpus > 1:
                    least = LEAST_GAIN_PER_CPU * min(threads, cpus)
                    text = f"{text}, on {cpus} CPUs"
                    statements.append(Statement(text, gain, least, why=NO_CORES))
        return statements + costs(results, threads)


def costs(results: Results, threads: int) -> list[Statement]:
    """The share of stock's throughput that each policy leaves."""
    statements = []
    rows = results.where(mode=THREADS, switch_interval=DEFAULT_SWITCH_INTERVAL_S, threads=threads)
    for policy in rows.distinct("policy"):
        for workload in rows.distinct("workload") if policy != STOCK else ():
            share = ratio(
                rows.find(policy=policy, workload=workload),
                rows.find(policy=STOCK, workload=workload),
            )
            if share is not None:
                text = f"{policy}, workload {workload}: calls/s of {threads} threads, of stock's"
                statements.append(Statement(text, share, LEAST_OF_STOCK))
    return statements


def calls_per_s(setting: Setting, workload: str, threads: int, seconds: float) -> float:
    """Raises ProgramError if no call ended."""
    words = (str(threads), workload, str(setting.switch_interval_s))
    with program(setting, "computation", *words) as computing:
        computing.answer()
        computing.measure(Window.after(WARM_UP_S, seconds))
        found: float = computing.answer()["work_per_s"]
    if not found:
        raise ProgramError(
            f"computation.py under {setting.name} ended no call of {workload} in {seconds:g} s"
        )
    return found
