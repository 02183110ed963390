"""Countdown: one amount of pure-Python work, shared out between threads. No policy may cost it.

A cell is a process of its own that counts down once; --seconds is about how long that takes (the
number of decrements is found at the start and is the same for all).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import sitting
from figures import Figures, Target, number, quartiles, table

from headway.experiments.measured import countdown
from headway.experiments.processes import STOCK, Setting, stock_and

NAME = "countdown"
THREADS = (1, 2, 4, 8)
# A count that takes longer is cut short, and what is left reckoned.
LIMIT_S = 60.0
TRIAL_DECREMENTS = 2_000_000
TRIALS = 3

# What Headway is held to: the time that a policy may take, in stock's.
TIME_OF_STOCK = 1.02

HEADINGS = ("threads", "row", "seconds", "/stock", "quartiles of /stock")


class Cell(NamedTuple):
    threads: int
    setting: Setting

    def parameters(self) -> dict[str, Any]:
        return {
            "threads": self.threads,
            **self.setting.parameters(),
        }

    def __str__(self) -> str:
        return f"threads: {self.threads}, {self.setting.name}"


def count_down(cell: Cell, decrements: int) -> float:
    """Seconds for all threads to be done."""
    found_s = countdown.count_down(cell.setting, cell.threads, decrements, LIMIT_S)
    return found_s * decrements / countdown.UNIT_DECREMENTS


def print_table(figures: Figures[Cell], cells: Sequence[Cell]) -> None:
    lines = []
    for cell in cells:
        ratios = figures.ratios(cell, cell._replace(setting=STOCK), "time_s")
        low, middle, high = quartiles(ratios)
        shown = (number(figures.median(cell, "time_s")), f"{middle:.3f}")
        lines.append((str(cell.threads), cell.setting.name, *shown, f"{low:.3f} to {high:.3f}"))
    print(table(HEADINGS, lines))
    print("/stock: median of the ratios round by round.\n")


def measure(options: argparse.Namespace) -> sitting.Experiments:
    settings = stock_and(options.policy)
    cells = [Cell(threads, setting) for threads in options.threads for setting in settings]
    trials = [count_down(Cell(1, STOCK), TRIAL_DECREMENTS) for _ in range(TRIALS)]
    decrements = round(TRIAL_DECREMENTS * options.seconds / min(trials))
    print(f"{decrements:,} decrements")
    figures: Figures[Cell] = Figures()
    count_all_down = partial(count_down, decrements=decrements)
    for cell, seconds in sitting.rounds(NAME, options.rounds, cells, count_all_down):
        figures.record(cell, time_s=seconds)
    print_table(figures, cells)
    targets = [
        Target(
            f"{cell}: time, of stock's",
            figures.ratio(cell, cell._replace(setting=STOCK), "time_s"),
            TIME_OF_STOCK,
            at_most=True,
        )
        for cell in cells
        if cell.setting.policy is not None
    ]
    print(*targets, sep="\n")
    return figures.experiments(NAME, Cell.parameters, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=15, seconds=0.6, quick_seconds=0.2)
    sitting.add_threads(parser, "--threads", THREADS, "how many threads share the work")
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
