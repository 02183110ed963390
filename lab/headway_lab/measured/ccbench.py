"""The common part of ccbench's three experiments: the workloads, the rows, and the tables.

ccbench is Antoine Pitrou's benchmark for the GIL that CPython has had since 3.2 (seed 003). It came
with CPython up to 3.11. This module does not know what a row measures.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from headway.errors import CommandError
from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Result, Results
from headway.output.table import Cell, Series, Table, cell_of
from headway_lab.experiment import Choice, Experiment, Measured, Row
from headway_lab.setting import Setting

# The workloads in ccbench's own words. Those with one letter are its default.
WORKLOADS = {
    "A": "Pi calculation (Python)",
    "B": "regular expression (C)",
    "C": "bz2 compression (C)",
    "sha1": "SHA1 hashing (C)",
    "zlib": "zlib compression (C)",
}
KEEP_GIL = ("A", "B")
THREADS = "threads"
FREE_THREADED = "free-threaded"
# The policies that give the GIL to a thread with I/O before threads that compute.
SWIFT_POLICIES = ("priority", "deadline")


class WorkloadExperiment(Experiment):
    """Rows are policies x switch intervals x workloads x numbers of computing threads, and for a
    free-threaded interpreter workloads x numbers of threads."""

    heeds = frozenset({"policy", "switch-interval", "threads", "workload"})

    # The name of the parameter for the number of computing threads.
    threads_are: ClassVar[str]
    least_threads: ClassVar[int]
    # The defaults, and those of --quick.
    known_workloads = tuple(WORKLOADS)
    # The workloads that are measured by default.
    workloads: ClassVar[tuple[str, ...]]
    quick_workloads: ClassVar[tuple[str, ...]]
    threads: ClassVar[tuple[int, ...]] = (1, 2, 4)
    quick_threads: ClassVar[tuple[int, ...]] = (1, 2)
    # The switch intervals of stock. Policies are measured at CPython's default.
    intervals_s: ClassVar[tuple[float, ...]] = (DEFAULT_SWITCH_INTERVAL_S,)

    def rows(self, choice: Choice) -> list[Row]:
        workloads = self._workloads(choice)
        threads = self._threads(choice)
        rows = []
        for policy in choice.policies:
            for interval_s in self._intervals_s(choice, policy):
                schedule = {"policy": policy, "switch_interval": interval_s, "mode": THREADS}
                setting = choice.setting(policy, interval_s)
                # --quick shows the effect of a policy only where it is largest.
                briefly = choice.quick and policy != choice.policies[0]
                counts = (max(threads),) if briefly else threads
                rows += self._workload_rows(schedule, setting, workloads, counts)
        if STOCK in choice.policies:
            schedule = {"policy": STOCK, "mode": FREE_THREADED}
            if choice.free_threaded is None:
                rows.append(Row(schedule, choice.setting(), choice.no_free_threading))
            else:
                setting = choice.free_threaded_setting()
                counts = (min(threads), max(threads)) if choice.quick else threads
                rows += self._workload_rows(schedule, setting, workloads, counts)
        return rows

    def _workload_rows(
        self,
        schedule: Parameters,
        setting: Setting,
        workloads: Sequence[str],
        threads: Sequence[int],
    ) -> list[Row]:
        return [
            Row({**schedule, "workload": workload, self.threads_are: count}, setting)
            for workload in workloads
            for count in dict.fromkeys(threads)
        ]

    def _workloads(self, choice: Choice) -> tuple[str, ...]:
        return choice.workloads or (self.quick_workloads if choice.quick else self.workloads)

    def _threads(self, choice: Choice) -> tuple[int, ...]:
        """The numbers of threads, without those for other experiments, unless none would be
        left."""
        asked = choice.threads or (self.quick_threads if choice.quick else self.threads)
        kept = tuple(count for count in asked if count >= self.least_threads)
        if not kept:
            raise CommandError(
                f"--threads {asked[0]}: {self.name} takes from {self.least_threads} on",
                exit_code=2,
            )
        return kept

    def _intervals_s(self, choice: Choice, policy: str) -> tuple[float, ...]:
        if choice.switch_intervals_s:
            return choice.switch_intervals_s
        if policy == STOCK and not choice.quick:
            return self.intervals_s
        return (DEFAULT_SWITCH_INTERVAL_S,)

    def calibrate(self, choice: Choice) -> Parameters:
        """The number of processors on which threads can compute at the same time."""
        return {"cpus": len(os.sched_getaffinity(0))}

    @abstractmethod
    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured: ...

    def published(self, parameters: Parameters) -> float | None:
        """Seed 003 has sentences, which are statements here, and no tables."""
        return None

    def most_threads(self, results: Results) -> int:
        return max(results.distinct(self.threads_are), default=0)


def schedule_of(result: Result) -> str:
    """The scheduler of a row's threads, in one or two words."""
    parameters = result.parameters
    if parameters["mode"] == FREE_THREADED:
        return FREE_THREADED
    return f"{parameters['policy']} {parameters['switch_interval'] * 1e3:g} ms"


def groups(results: Results) -> dict[tuple[str, str], Results]:
    """The rows that differ only in their numbers of threads, by workload and schedule."""
    found: dict[tuple[str, str], list[Result]] = {}
    for workload in results.distinct("workload"):
        for result in results.where(workload=workload):
            found.setdefault((workload, schedule_of(result)), []).append(result)
    return {
        name: Results(results.name, results.unit, rows, results.calibration)
        for name, rows in found.items()
    }


def ratio_cell(result: Result | None, base: Result | None) -> Cell:
    found = result.ratio(base) if result and base else None
    if found is None:
        return Cell(text="-" if result and result.values else cell_of(result).text)
    return Cell(*found)


def ratio(result: Result | None, base: Result | None) -> float | None:
    """The ratio of the medians; None if one of the rows was not measured."""
    return ratio_cell(result, base).value


def tables_by_threads(
    results: Results, threads_are: str, unit: str, base_threads: int
) -> list[Table]:
    """The measured values, and their ratios to the row with `base_threads`, which ccbench shows as
    percentages."""
    counts = sorted(results.distinct(threads_are))
    headings = ["workload", "schedule", *(numbered(count, threads_are) for count in counts)]
    measured, relative = [], []
    for (workload, schedule), group in groups(results).items():
        names = [Cell(text=workload), Cell(text=schedule)]
        cells = [group.find(**{threads_are: count}) for count in counts]
        base = group.find(**{threads_are: base_threads})
        measured.append([*names, *map(cell_of, cells)])
        if base is not None:
            relative.append([*names, *(ratio_cell(cell, base) for cell in cells)])
    tables = [Table(f"{unit}, by threads", headings, measured, 2, legend(results))]
    if relative and len(counts) > 1:
        title = f"{unit}, of those with {numbered(base_threads, threads_are)}"
        tables.append(Table(title, headings, relative, 2))
    return tables


def numbered(count: int, threads_are: str) -> str:
    name = threads_are.replace("_", " ").replace("cpu", "CPU")
    return f"{count} {name.removesuffix('s') if count == 1 else name}"


def legend(results: Results) -> str:
    return "; ".join(f"{name}: {WORKLOADS[name]}" for name in results.distinct("workload"))


def ratio_series(name: str, group: Results, threads_are: str, base: Result | None) -> Series:
    """Ratios to `base` by the number of threads."""
    found = [
        (float(result.parameters[threads_are]), result.ratio(base)) for result in group if base
    ]
    return Series(name, [(threads, *interval) for threads, interval in found if interval])
