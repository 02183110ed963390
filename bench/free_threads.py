"""Threads without a GIL, in a free-threaded build, beside processes with one in an ordinary build.

A free-threaded build takes longer over the same bytecode, whatever a server does: how fast one
thread of either build is at what the page computes is measured in every round, and taken out of the
comparison. Both builds do the same work for a request, a number of loops found on the ordinary one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import sitting
import worker_cell
from builds import THIS_BUILD, Build
from figures import Figures, number, ratio, table, target
from installed import Installed
from load_cell import Cell
from peers import HEADWAY, Server
from side_by_side import Sitting, ratio_text, spread_text

from headway.output.claim import Statement

PAGE = ("pages", "/fixed")
PROCESSES = (10, 1)
# Processes and threads without a GIL; the first is held against `PROCESSES`.
SHAPES = ((1, 10), (2, 5))

# Of the processes' requests, the builds' speed taken out, and of their memory.
SHARE_OF_PROCESSES = 0.97
MEMORY_OF_PROCESSES = 0.25
# Of the two builds, alone, in each round.
TURNS = 3

HEADINGS = (
    "server",
    "requests/s",
    "/10x1",
    "one thread",
    "/10x1/one thread",
    "p50 ms",
    "p99 ms",
    "CPU/process",
    "CPU total",
    "PSS MB",
    "/10x1",
    "RSS MB",
    "PSS, RSS with supervisor",
)


def build_speed(build: Build, fixed_loops: int) -> float:
    """One thread's speed in the free-threaded build, of the ordinary one's. The two take turns."""
    ratios = []
    for _ in range(TURNS):
        free, ordinary = (
            worker_cell.alone_cpu_s(python, free_threading, fixed_loops)
            for python, free_threading in ((build.python, True), (THIS_BUILD.python, False))
        )
        ratios.append(ratio(ordinary, free))
    return statistics.median(ratios)


def shares_of_builds(figures: Figures[Cell], cell: Cell, processes: Cell) -> list[float]:
    """Requests of the processes', round by round, once the builds' speed is taken out."""
    of_processes = figures.ratios(cell, processes, "requests_per_s")
    return list(map(ratio, of_processes, figures.values(cell, "build_speed")))


def print_table(figures: Figures[Cell], cells: Sequence[Cell], processes: Cell | None) -> None:
    lines = []
    for cell in cells:
        shares = []
        if processes is not None and cell != processes:
            shares = shares_of_builds(figures, cell, processes)
        lines.append(
            (
                str(cell.server),
                spread_text(figures.values(cell, "requests_per_s")),
                ratio_text(figures, cell, processes, "requests_per_s"),
                spread_text(figures.values(cell, "build_speed")),
                spread_text(shares),
                number(figures.median(cell, "p50_s") * 1e3),
                number(figures.median(cell, "p99_s") * 1e3),
                number(figures.median(cell, "cores_per_process")),
                number(figures.median(cell, "cores")),
                number(figures.median(cell, "pss_bytes") / 1e6),
                ratio_text(figures, cell, processes, "pss_bytes"),
                number(figures.median(cell, "rss_bytes") / 1e6),
                worker_cell.with_supervisor_text(figures, cell),
            )
        )
    print(table(HEADINGS, lines, names=1))
    print(worker_cell.LEGEND)
    print("One thread: its speed in this build, of the ordinary one's, at what the page computes.")


def targets_of(figures: Figures[Cell], cells: Sequence[Cell], processes: Cell) -> list[Statement]:
    targets = []
    for cell in cells:
        if (cell.server.processes, cell.server.threads) == SHAPES[0]:
            share = statistics.median(shares_of_builds(figures, cell, processes))
            text = (
                f"{cell}: requests/s of {processes.server.shape} with a GIL, over the builds' ratio"
            )
            targets.append(target(text, share, SHARE_OF_PROCESSES))
            memory = figures.ratio(cell, processes, "pss_bytes")
            text = f"{cell}: memory (PSS) of {processes.server.shape} with a GIL"
            targets.append(target(text, memory, MEMORY_OF_PROCESSES, at_most=True))
    return targets


def measure(
    name: str, build: Build, fixed_loops: int, options: argparse.Namespace
) -> sitting.Experiments:
    installed = Installed([])

    def measure_cell(cell: Cell) -> dict[str, float]:
        speed = {"build_speed": build_speed(build, fixed_loops)} if cell != processes else {}
        return {**worker_cell.measure(cell, installed, fixed_loops, options), **speed}

    found = Sitting(f"{name} free_threads", installed)
    processes = Cell(*PAGE, Server(HEADWAY, *PROCESSES))
    wanted = [
        Cell(*PAGE, Server(HEADWAY, *shape, free_threading=True, python=build.python))
        for shape in SHAPES
    ]
    cells = found.run(options.rounds, [*wanted, processes], measure_cell)
    there = processes if processes in cells else None
    print_table(found.figures, cells, there)
    targets = targets_of(found.figures, cells, there) if there is not None else []
    return found.conclude(targets, Cell.parameters)
