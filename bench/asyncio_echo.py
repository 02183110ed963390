"""An asyncio echo server (streams) beside CPU-bound threads: what it keeps of its own rate.

The client is that of `echo`. Each row's rate is held against the rate that the same server, under
the same policy, had in the same round without CPU-bound threads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

import echo_cell
import sitting
from echo_cell import Cell
from figures import Figures, number, print_targets, table, target

from headway.output.claim import Statement
from headway_lab.setting import STOCK, stock_and

NAME = "asyncio_echo"
SERVER = "asyncio_echo_server"
CPU_THREADS = (0, 1, 2, 4)

# Headway's targets, by number of CPU-bound threads.
SHARE_OF_RATE_ALONE = {1: 0.9, 2: 0.7, 4: 0.6}
P99_MS = 1.0

HEADINGS: tuple[str, ...] = (
    "CPU-bound",
    "row",
    "requests/s",
    "/alone",
    "/stock",
    "p50 ms",
    "p99 ms",
    "max ms",
    "CPU work",
    "handoff",
)
LEGEND = """\
/alone: of the row's own rate without CPU-bound threads; it and /stock are medians of the
ratios round by round. p50, p99: medians over rounds; max: of all. CPU work: of all CPU-
bound threads together, as a share of one thread's alone; handoff: as a share of the time.
"""


def print_table(figures: Figures[Cell], cells: Sequence[Cell]) -> None:
    lines = []
    for cell in cells:
        shown = (
            figures.median(cell, "requests_per_s"),
            figures.ratio(cell, cell._replace(cpu_threads=0), "requests_per_s"),
            figures.ratio(cell, cell._replace(setting=STOCK), "requests_per_s"),
            figures.median(cell, "p50_s") * 1e3,
            figures.median(cell, "p99_s") * 1e3,
            figures.highest(cell, "max_s") * 1e3,
            figures.median(cell, "work_share"),
            figures.median(cell, "handoff_share"),
        )
        lines.append((str(cell.cpu_threads), cell.row, *map(number, shown)))
    print(table(HEADINGS, lines))
    print(LEGEND)


def targets_of(figures: Figures[Cell], cells: Sequence[Cell]) -> list[Statement]:
    targets = []
    for cell in cells:
        if cell.setting.policy is None or not cell.cpu_threads:
            continue
        if cell.cpu_threads in SHARE_OF_RATE_ALONE:
            share = figures.ratio(cell, cell._replace(cpu_threads=0), "requests_per_s")
            bound = SHARE_OF_RATE_ALONE[cell.cpu_threads]
            targets.append(target(f"{cell}: requests/s of its rate alone", share, bound))
        p99_ms = figures.median(cell, "p99_s") * 1e3
        targets.append(target(f"{cell}: p99", p99_ms, P99_MS, at_most=True, unit="ms"))
    return targets


def measure(options: argparse.Namespace) -> sitting.Experiments:
    settings = stock_and(options.policy)
    # The cell without CPU-bound threads is always measured: the others are compared with it.
    counts = sorted({0, *options.cpu_threads})
    cells = [Cell(count, "threads", setting) for count in counts for setting in settings]
    figures: Figures[Cell] = Figures()
    measure_cell = partial(echo_cell.measure, seconds=options.seconds, server=SERVER)
    for cell, found in sitting.rounds(NAME, options.rounds, cells, measure_cell):
        figures.record(cell, **found)
    print_table(figures, cells)
    targets = targets_of(figures, cells)
    print_targets(targets)
    return figures.experiments(NAME, Cell.parameters, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=5, seconds=1.0, quick_seconds=0.4)
    sitting.add_threads(parser, "--cpu-threads", CPU_THREADS, "how many CPU-bound threads")
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
