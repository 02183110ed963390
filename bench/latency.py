"""ccbench's latency: how long a UDP ping waits for its thread, beside CPU-bound threads.

A is pure Python; B is C code that keeps the GIL, a regular expression whose calls cannot be
preempted, so that a ping waits for the end of one; C drops the GIL. Thousands of pings a row.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import sitting
from figures import Figures, Target, number, percentile, table

from headway.experiments.processes import NS, STOCK, Setting, Window, program, stock_and
from headway.report.model import GilReport

NAME = "latency"
WORKLOADS = ("A", "B", "C")
THREADS = (1, 2, 4)
WARM_UP_S = 0.2

# What Headway is held to. Beside B, a ping may wait as long for the call that holds the GIL.
P99_MS = 1.0

HEADINGS = ("workload", "CPU-bound", "row", "pings", "p50 ms", "p99 ms", "max ms", "call ms")
LEGEND = """\
p50, p99: medians over rounds; max: of all. call: the 99th percentile of one call of the workload,
measured alone in each round.
"""


class Cell(NamedTuple):
    workload: str
    cpu_threads: int
    setting: Setting

    def parameters(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "cpu_threads": self.cpu_threads,
            **self.setting.parameters(),
        }

    def __str__(self) -> str:
        return f"{self.workload}, {self.cpu_threads} CPU-bound, {self.setting.name}"


class Holder(NamedTuple):
    """The thread with the longest hold, from the GIL report."""

    hold_s: float
    name: str


def measure_cell(cell: Cell, seconds: float) -> tuple[dict[str, float], Holder | None]:
    with program(STOCK, "workloads", cell.workload) as alone:
        call_p99_s = percentile(alone.answer()["calls_s"], 0.99)
    with ExitStack() as running:
        arguments = (cell.workload, str(cell.cpu_threads))
        server = running.enter_context(program(cell.setting, "ping_server", *arguments))
        port = str(server.answer()["port"])
        client = running.enter_context(program(STOCK, "ping_client", port))
        client.answer()
        window = Window.after(WARM_UP_S, seconds)
        for told in (server, client):
            told.measure(window)
        answer, lost = server.answer(), client.answer()["lost"]
    latencies_s = [
        latency_ns / NS for sent_ns, latency_ns in answer["pings"] if sent_ns >= window.begin_ns
    ]
    figures = {
        "pings": float(len(latencies_s)),
        "lost": float(lost),
        "p50_s": percentile(latencies_s, 0.5),
        "p99_s": percentile(latencies_s, 0.99),
        "max_s": max(latencies_s, default=math.nan),
        "call_p99_s": call_p99_s,
    }
    return figures, longest_holder(GilReport.decode(answer["gil"])) if answer["gil"] else None


def longest_holder(report: GilReport) -> Holder | None:
    holders = [
        Holder(thread.hold.max_s, thread.name)
        for thread in report.threads
        if thread.hold.max_s is not None
    ]
    return max(holders, default=None)


def print_table(figures: Figures[Cell], cells: Sequence[Cell]) -> None:
    lines = []
    for cell in cells:
        shown = (
            sum(figures.values(cell, "pings")),
            figures.median(cell, "p50_s") * 1e3,
            figures.median(cell, "p99_s") * 1e3,
            figures.highest(cell, "max_s") * 1e3,
            figures.median(cell, "call_p99_s") * 1e3,
        )
        name = (cell.workload, str(cell.cpu_threads), cell.setting.name)
        lines.append((*name, *map(number, shown)))
    print(table(HEADINGS, lines, names=3))
    print(LEGEND)


def targets_of(figures: Figures[Cell], cells: Sequence[Cell]) -> list[Target]:
    targets = []
    for cell in cells:
        p99_ms = figures.median(cell, "p99_s") * 1e3
        if cell.setting.policy is None:
            continue
        if cell.workload == "A":
            targets.append(Target(f"{cell}: p99", p99_ms, P99_MS, at_most=True, unit="ms"))
        if cell.workload == "B":
            bound_ms = P99_MS + figures.median(cell, "call_p99_s") * 1e3
            text = f"{cell}: p99, with the call that cannot be preempted"
            targets.append(Target(text, p99_ms, bound_ms, at_most=True, unit="ms"))
    return targets


def measure(options: argparse.Namespace) -> sitting.Experiments:
    settings = stock_and(options.policy)
    cells = [
        Cell(workload, cpu_threads, setting)
        for workload in options.workload
        for cpu_threads in options.cpu_threads
        for setting in settings
    ]
    figures: Figures[Cell] = Figures()
    holders: dict[Cell, Holder] = {}
    measure_for = partial(measure_cell, seconds=options.seconds)
    for cell, (found, holder) in sitting.rounds(NAME, options.rounds, cells, measure_for):
        figures.record(cell, **found)
        if holder is not None:
            holders[cell] = max(holder, holders.get(cell, holder))
    print_table(figures, cells)
    for cell, holder in holders.items():
        # Under CPython's own rule a hold lasts as many calls as an interval has room for.
        if cell.workload == "B" and cell.setting.policy != "interval":
            print(
                f"{cell}: held by a call that cannot be preempted for {holder.hold_s * 1e3:.2f} ms "
                f"at the longest, by {holder.name}"
            )
    targets = targets_of(figures, cells)
    print(*targets, sep="\n")
    return figures.experiments(NAME, Cell.parameters, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=5, seconds=2.0, quick_seconds=0.5)
    sitting.add_workloads(parser, WORKLOADS)
    sitting.add_threads(parser, "--cpu-threads", THREADS, "how many CPU-bound threads")
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
