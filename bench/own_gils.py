"""Interpreters with a GIL of their own in one process, beside one of them and beside processes.

Each shape has one thread for each GIL. `fixed` tells how much work gets done; the frameworks tell
what an application of a usual size takes of memory in a second interpreter and in a second process.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import sitting
import worker_cell
from figures import number, table, target
from installed import Installed
from load_cell import Cell
from peers import HEADWAY, Server
from side_by_side import Sitting, ratio_text, spread_text

from headway.output.claim import Statement

ONE = Server(HEADWAY, 1, 1, interpreters=1)
TWO = Server(HEADWAY, 1, 2, interpreters=2)
PROCESSES = Server(HEADWAY, 2, 1)
SERVERS = (ONE, TWO, PROCESSES)
APPLICATIONS = ("pages", "flask", "django")

# Targets for two interpreters: requests against one's, memory against that of two processes.
TIMES_ONE = 1.85
MEMORY_OF_PROCESSES = 0.6

HEADINGS = (
    "page",
    "server",
    "requests/s",
    "/one interpreter",
    "CPU/process",
    "CPU total",
    "PSS MB",
    "/2 processes",
    "RSS MB",
    "PSS, RSS with supervisor",
)


def print_table(found: Sitting, cells: Sequence[Cell]) -> None:
    figures, lines = found.figures, []
    for cell in cells:
        one, processes = beside(cell, ONE, cells), beside(cell, PROCESSES, cells)
        lines.append(
            (
                page(cell),
                str(cell.server),
                spread_text(figures.values(cell, "requests_per_s")),
                ratio_text(figures, cell, one, "requests_per_s"),
                number(figures.median(cell, "cores_per_process")),
                number(figures.median(cell, "cores")),
                number(figures.median(cell, "pss_bytes") / 1e6),
                ratio_text(figures, cell, processes, "pss_bytes"),
                number(figures.median(cell, "rss_bytes") / 1e6),
                worker_cell.with_supervisor_text(figures, cell),
            )
        )
    print(table(HEADINGS, lines))
    print(worker_cell.LEGEND)


def page(cell: Cell) -> str:
    return cell.application if cell.path == "/" else cell.path.removeprefix("/")


def beside(cell: Cell, server: Server, cells: Sequence[Cell]) -> Cell | None:
    """The cell of another server for the same page; None if it is not measured."""
    other = cell._replace(server=server)
    return other if other in cells else None


def targets_of(found: Sitting, cells: Sequence[Cell]) -> list[Statement]:
    targets = []
    for cell in (cell for cell in cells if cell.server == TWO):
        one, processes = beside(cell, ONE, cells), beside(cell, PROCESSES, cells)
        if one is not None and cell.path == "/fixed":
            times = found.figures.ratio(cell, one, "requests_per_s")
            text = f"{cell}: requests/s of one interpreter's"
            targets.append(target(text, times, TIMES_ONE))
        if processes is not None:
            share = found.figures.ratio(cell, processes, "pss_bytes")
            text = f"{cell}: memory (PSS) of two processes'"
            targets.append(target(text, share, MEMORY_OF_PROCESSES, at_most=True))
    return targets


def measure(name: str, fixed_loops: int, options: argparse.Namespace) -> sitting.Experiments:
    installed = Installed([])
    found = Sitting(f"{name} own_gils", installed)
    cells = [
        Cell(application, "/fixed" if application == "pages" else "/", server)
        for application in dict.fromkeys(options.application)
        for server in SERVERS
    ]
    measure_cell = partial(
        worker_cell.measure, installed=installed, fixed_loops=fixed_loops, options=options
    )
    cells = found.run(options.rounds, cells, measure_cell)
    print_table(found, cells)
    return found.conclude(targets_of(found, cells), Cell.parameters)
