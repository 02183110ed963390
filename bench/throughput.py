"""ccbench's throughput: calls a second of CPU-bound work, by threads. No policy may cost it.

A is pure Python (digits of pi), B C code that keeps the GIL (a regular expression), C C code that
drops it (bz2), which is to go on scaling with the processors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import sitting
from figures import Figures, Target, number, quartiles, table

from headway.experiments.processes import STOCK, Setting, Window, program, stock_and

NAME = "throughput"
WORKLOADS = ("A", "B", "C")
THREADS = (1, 2, 4)
WARM_UP_S = 0.1

# What Headway is held to: a policy's calls a second, in stock's.
SHARE_OF_STOCK = 0.98

HEADINGS = ("workload", "row", "threads", "calls/s", "/1 thread", "/stock", "quartiles of /stock")


class Cell(NamedTuple):
    workload: str
    threads: int
    setting: Setting

    def parameters(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "threads": self.threads,
            **self.setting.parameters(),
        }

    def __str__(self) -> str:
        return f"{self.workload}, threads: {self.threads}, {self.setting.name}"


def measure_cell(cell: Cell, seconds: float) -> float:
    """Calls a second."""
    arguments = (str(cell.threads), cell.workload)
    with program(cell.setting, "computation", *arguments) as computing:
        computing.answer()
        computing.measure(Window.after(WARM_UP_S, seconds))
        calls_per_s: float = computing.answer()["work_per_s"]
    return calls_per_s


def print_table(figures: Figures[Cell], cells: Sequence[Cell]) -> None:
    lines = []
    for cell in cells:
        ratios = figures.ratios(cell, cell._replace(setting=STOCK), "calls_per_s")
        low, middle, high = quartiles(ratios)
        shown = (
            number(figures.median(cell, "calls_per_s")),
            number(figures.ratio(cell, cell._replace(threads=1), "calls_per_s")),
            f"{middle:.3f}",
            f"{low:.3f} to {high:.3f}",
        )
        lines.append((cell.workload, cell.setting.name, str(cell.threads), *shown))
    print(table(HEADINGS, lines))
    print("/1 thread, /stock: medians of the ratios round by round.\n")


def measure(options: argparse.Namespace) -> sitting.Experiments:
    settings = stock_and(options.policy)
    cells = [
        Cell(workload, threads, setting)
        for workload in options.workload
        for threads in options.threads
        for setting in settings
    ]
    figures: Figures[Cell] = Figures()
    measure_for = partial(measure_cell, seconds=options.seconds)
    for cell, calls_per_s in sitting.rounds(NAME, options.rounds, cells, measure_for):
        figures.record(cell, calls_per_s=calls_per_s)
    print_table(figures, cells)
    targets = [
        Target(
            f"{cell}: calls/s, of stock's",
            figures.ratio(cell, cell._replace(setting=STOCK), "calls_per_s"),
            SHARE_OF_STOCK,
        )
        for cell in cells
        if cell.setting.policy is not None
    ]
    print(*targets, sep="\n")
    return figures.experiments(NAME, Cell.parameters, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=11, seconds=0.5, quick_seconds=0.2)
    sitting.add_workloads(parser, WORKLOADS)
    sitting.add_threads(parser, "--threads", THREADS, "how many threads work")
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
