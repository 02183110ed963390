"""`echo`: an echo server's requests a second beside CPU-bound work, the convoy effect."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from headway.errors import CommandError
from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results
from headway.output.table import Chart, Table
from headway_lab.experiment import MODES, Choice, Experiment, Measured, Row
from headway_lab.measured import echo_claims, echo_tables, echo_value
from headway_lab.measured.echo_value import (
    CLIENT_ELSEWHERE,
    FREE,
    FREE_THREADED,
    INTERPRETERS,
    ONE,
    PROCESSES,
    THREADS,
    Beside,
)

SECONDS = 0.5
QUICK_SECONDS = 0.3


class Group(NamedTuple):
    """Rows for each interval with each number of threads. `policies` means under Headway's policies
    instead of CPython alone."""

    cpu_threads: tuple[int, ...]
    intervals_s: tuple[float, ...] = (DEFAULT_SWITCH_INTERVAL_S,)
    policies: bool = False
    mode: str = THREADS
    cores: str = FREE


GROUPS = (
    Group((0, 1, 2, 4), (0.1, 0.01, 0.005, 0.001, 0.0001, 0.00001, 0.000001)),
    Group((8,)),
    Group((0, 1, 2, 4, 8), policies=True),
    Group((1, 4), (0.1, 0.0001), policies=True),
    Group((1, 2, 4, 8), mode=PROCESSES),
    Group((1, 2, 4), mode=INTERPRETERS),
    Group((0, 1, 2, 4), mode=FREE_THREADED),
    Group((0, 1, 2, 4), cores=CLIENT_ELSEWHERE),
    # If the kernel moves threads between cores, a server sometimes answers many requests before the
    # computing thread runs again. On separate cores it cannot.
    Group((1, 2), (0.1, 0.01, 0.005, 0.001, 0.0001), cores=CLIENT_ELSEWHERE),
    Group((1, 4), policies=True, cores=CLIENT_ELSEWHERE),
    Group((0, 1, 2, 4, 8), cores=ONE),
    Group((1, 4), policies=True, cores=ONE),
)
QUICK_GROUPS = (
    Group((0, 1, 2)),
    Group((1,), (0.0001,)),
    Group((1,), policies=True),
    Group((1,), mode=PROCESSES),
)

# Requests a second on 2 cores, CPython 3.9 (seeds 002 and 004), by CPU-bound threads.
PUBLISHED_PER_S = {
    0.1: {0: 30_000, 1: 5, 2: 2, 4: 0},
    0.01: {0: 30_000, 1: 50, 2: 30, 4: 15},
    0.005: {0: 30_000, 1: 100, 2: 50, 4: 30},
    0.001: {0: 30_000, 1: 500, 2: 280, 4: 200},
    0.0001: {0: 30_000, 1: 3_200, 2: 1_700, 4: 1_000},
    0.00001: {0: 30_000, 1: 11_000, 2: 5_500, 4: 2_800},
    0.000001: {0: 30_000, 1: 10_000, 2: 4_500, 4: 2_500},
}
# The same with the work in one to four other processes.
PUBLISHED_PROCESSES_PER_S = {1: 20_000, 2: 20_000, 4: 20_000}
# Server and client on one processor, at 5 ms.
PUBLISHED_ONE_PER_S = {0: 24_000, 1: 12_000, 2: 3_000, 4: 30, 8: 10}


class Echo(Experiment):
    name = "echo"
    unit = "requests/s"
    summary = "an echo server's requests with CPU-bound work: the convoy"
    shows = (
        "A client sends one byte to an echo server, waits until it comes back and sends the next, "
        "while threads, processes or sub-interpreters beside the server compute. A thread that "
        "computes keeps the GIL for a switch interval whenever the server's thread waits for it, "
        "so that a request takes milliseconds instead of microseconds; processes do not, and "
        "neither do threads under a policy that lets those that wait for I/O go first."
    )
    heeds = frozenset({"policy", "switch-interval", "threads", "mode"})

    def rows(self, choice: Choice) -> list[Row]:
        for mode in choice.modes or ():
            if reason := no_mode(mode, choice):
                raise CommandError(f"--mode {mode}: {reason}", exit_code=2)
        found: dict[tuple[object, ...], Row] = {}
        for group in QUICK_GROUPS if choice.quick else GROUPS:
            if group.mode in (choice.modes or MODES):
                # The user's choice may make two groups share rows.
                found |= {tuple(row.parameters.values()): row for row in rows_of(group, choice)}
        return list(found.values())

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        named = row.parameters
        beside = Beside(
            row.setting, choice.setting(), named["cpu_threads"], named["mode"], named["cores"]
        )
        base_s = QUICK_SECONDS if choice.quick else SECONDS
        return echo_value.measure(beside, choice.seconds or beside.seconds(base_s))

    def published(self, parameters: Parameters) -> float | None:
        if parameters["policy"] != STOCK:
            return None
        interval_s = parameters["switch_interval"]
        where = (parameters["mode"], parameters["cores"])
        by_threads: dict[int, int] = {}
        if where == (THREADS, FREE):
            by_threads = PUBLISHED_PER_S.get(interval_s, {})
        elif where == (THREADS, ONE) and interval_s == DEFAULT_SWITCH_INTERVAL_S:
            by_threads = PUBLISHED_ONE_PER_S
        elif where == (PROCESSES, FREE):
            by_threads = PUBLISHED_PROCESSES_PER_S
        return by_threads.get(parameters["cpu_threads"])

    def tables(self, results: Results) -> list[Table]:
        return echo_tables.tables(results)

    def charts(self, results: Results) -> list[Chart]:
        return echo_tables.charts(results)

    def statements(self, results: Results) -> list[Statement]:
        return echo_claims.statements(results)


def rows_of(group: Group, choice: Choice) -> Iterator[Row]:
    intervals_s = choice.switch_intervals_s or group.intervals_s
    if (group.mode, group.cores) != (THREADS, FREE) and len(group.intervals_s) == 1:
        intervals_s = (echo_tables.reference_interval_s(intervals_s),)
    for policy in choice.policies:
        if (policy != STOCK) != group.policies:
            continue
        for interval_s in intervals_s:
            for cpu_threads in choice.threads or group.cpu_threads:
                setting = choice.setting(policy, interval_s)
                if group.mode == FREE_THREADED and choice.free_threaded is not None:
                    setting = choice.free_threaded_setting()
                # Without CPU-bound work, its place does not matter.
                if cpu_threads or group.mode in (THREADS, FREE_THREADED):
                    yield Row(
                        {
                            "policy": policy,
                            "switch_interval": interval_s,
                            "cpu_threads": cpu_threads,
                            "mode": group.mode,
                            "cores": group.cores,
                        },
                        setting,
                        no_mode(group.mode, choice) or no_cores(group.cores),
                    )


def no_mode(mode: str, choice: Choice) -> str:
    """The reason why the work cannot run in this place; empty if it can."""
    if mode == INTERPRETERS:
        return choice.no_own_gils
    return choice.no_free_threading if mode == FREE_THREADED else ""


def no_cores(cores: str) -> str:
    if cores == CLIENT_ELSEWHERE and len(os.sched_getaffinity(0)) < 2:
        return "this process may use one processor, and that takes two"
    return ""
