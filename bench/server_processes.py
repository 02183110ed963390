"""Light requests beside heavy pages in one process, and beside the same pages in other processes.

Two visitors loop on a page of 200 ms of pure Python, while hello is asked for in an open loop. One
cell is `headway serve`, 1 x 4, which answers both. In the other the same server answers the light
requests, and two processes of another one the heavy pages: then the kernel's scheduler alone
decides who runs. The two take turns, and are compared pair by pair.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import sitting
from figures import Figures, print_targets, table, target
from installed import PEERS_FOLDER
from peers import HEADWAY, Server
from serving import serving
from side_by_side import spread_text
from visits import CONNECTIONS, heavy_page_loops, visit

from headway.output.claim import Statement

NAME = "server_processes"
LIGHT_PER_S = 200.0
HEAVY_VISITORS = 2
RATIO = 1.2
FIGURES = ("p50_s", "p99_s", "heavy_per_s")


class Cell(NamedTuple):
    heavy: str
    policy: str | None

    def __str__(self) -> str:
        return f"heavy pages in {self.heavy}"


def measure_cell(cell: Cell, loops: int, options: argparse.Namespace) -> dict[str, float]:
    pages = partial(serving, application="pages", peers_bin=PEERS_FOLDER / "bin")
    with ExitStack() as stack:
        light = stack.enter_context(
            pages(Server(HEADWAY, 1, 4, cell.policy), PAGE_LOOPS=str(loops))
        )
        heavy = light
        if cell.heavy == "other processes":
            beside = Server(HEADWAY, HEAVY_VISITORS, 1, cell.policy)
            heavy = stack.enter_context(pages(beside, PAGE_LOOPS=str(loops)))
        return visit(
            light.port, LIGHT_PER_S, CONNECTIONS, HEAVY_VISITORS, options.seconds, heavy.port
        )


def targets_of(figures: Figures[Cell], same: Cell, other: Cell) -> list[Statement]:
    ratio = figures.ratio(same, other, "p99_s")
    text = "p99 of light requests in one process to that beside processes"
    return [target(text, ratio, RATIO, at_most=True)]


def measure(options: argparse.Namespace) -> sitting.Experiments:
    loops = heavy_page_loops()
    figures: Figures[Cell] = Figures()
    policy = options.policy[0] if options.policy else None
    same, other = Cell("the same process", policy), Cell("other processes", policy)
    measured = partial(measure_cell, loops=loops, options=options)
    for cell, found in sitting.rounds(NAME, options.rounds, [same, other], measured):
        figures.record(cell, **found)
    rows = [
        (
            cell.heavy,
            spread_text(figures.values(cell, "p50_s"), 1e3),
            spread_text(figures.values(cell, "p99_s"), 1e3),
            spread_text(figures.values(cell, "heavy_per_s")),
        )
        for cell in (same, other)
    ]
    print(table(("heavy pages in", "p50 ms", "p99 ms", "heavy/s"), rows, names=1))
    for figure in FIGURES:
        print(f"ratio of {figure}: {spread_text(figures.ratios(same, other, figure))}")
    targets = targets_of(figures, same, other)
    print_targets(targets)
    return figures.experiments(NAME, Cell._asdict, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=10, seconds=5, quick_seconds=1, policies=())
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
