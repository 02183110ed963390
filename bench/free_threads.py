"""Threads without a GIL, in a free-threaded build, beside processes with one in an ordinary build.

A free-threaded build takes longer over the same bytecode, whatever a server does: how fast one
thread of either build is at what the page computes is measured in every round, and taken out of the
comparison. Both builds do the same work for a request, a number of loops found on the ordinary one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import sitting
import worker_cell
from builds import Build
from figures import Figures, Target, number, ratio, table
from installed import Installed
from load_cell import Cell
from peers import HEADWAY, Server
from side_by_side import Sitting, ratio_text, spread_text

PAGE = ("pages", "/fixed")
PROCESSES = (10, 1)
# Processes and threads without a GIL; the first is held against `PROCESSES`.
SHAPES = ((1, 10), (2, 5))

# Of the processes' requests, the builds' speed taken out, and of their memory.
SHARE_OF_PROCESSES = 0.97
MEMORY_OF_PROCESSES = 0.25

HEADINGS = (
    "server",
    "requests/s",
    "/10x1",
    "without the builds'",
    "p50 ms",
    "p99 ms",
    "CPU/process",
    "CPU total",
    "PSS MB",
    "/10x1",
    "RSS MB",
    "PSS, RSS with supervisor",
)


def share_of_build(figures: Figures[Cell], cell: Cell, processes: Cell) -> list[float]:
    """Requests of the processes', round by round, over what one thread does of what theirs does."""
    return [
        ratio(of_processes, of_one_thread)
        for of_processes, of_one_thread in zip(
            figures.ratios(cell, processes, "requests_per_s"),
            figures.ratios(cell, processes, "alone_per_s"),
            strict=True,
        )
    ]


def print_table(figures: Figures[Cell], cells: Sequence[Cell], processes: Cell | None) -> None:
    lines = []
    for cell in cells:
        whole = [
            number(figures.median(cell, f"{kind}_with_supervisor_bytes") / 1e6)
            for kind in ("pss", "rss")
        ]
        shares = share_of_build(figures, cell, processes) if processes else []
        lines.append(
            (
                str(cell.server),
                spread_text(figures.values(cell, "requests_per_s")),
                ratio_text(figures, cell, processes, "requests_per_s"),
                spread_text(shares),
                number(figures.median(cell, "p50_s") * 1e3),
                number(figures.median(cell, "p99_s") * 1e3),
                number(figures.median(cell, "cores_per_process")),
                number(figures.median(cell, "cores")),
                number(figures.median(cell, "pss_bytes") / 1e6),
                ratio_text(figures, cell, processes, "pss_bytes"),
                number(figures.median(cell, "rss_bytes") / 1e6),
                ", ".join(whole),
            )
        )
    print(table(HEADINGS, lines, names=1))
    print(
        "Medians over rounds, with their range; ratios round by round. CPU: in cores. Memory: the\n"
        "worker processes'; RSS counts what they share for each of them, PSS once in all."
    )
    for cell in cells if processes is not None else ():
        if cell is not processes:
            alone = ratio_text(figures, cell, processes, "alone_per_s")
            print(f"one thread of this build, of the ordinary one's, beside {cell.server}: {alone}")


def targets_of(figures: Figures[Cell], cells: Sequence[Cell], processes: Cell) -> list[Target]:
    targets = []
    for cell in cells:
        if (cell.server.processes, cell.server.threads) == SHAPES[0]:
            share = statistics.median(share_of_build(figures, cell, processes))
            text = (
                f"{cell}: requests/s of {processes.server.shape} with a GIL, over the builds' ratio"
            )
            targets.append(Target(text, share, SHARE_OF_PROCESSES))
            memory = figures.ratio(cell, processes, "pss_bytes")
            text = f"{cell}: memory (PSS) of {processes.server.shape} with a GIL"
            targets.append(Target(text, memory, MEMORY_OF_PROCESSES, at_most=True))
    return targets


def measure(
    name: str, build: Build, fixed_loops: int, options: argparse.Namespace
) -> sitting.Experiments:
    installed = Installed([])

    def measure_cell(cell: Cell) -> dict[str, float]:
        server = cell.server
        python = server.python or Path(sys.executable)
        alone_per_s = worker_cell.alone_per_s(python, server.free_threading, fixed_loops)
        return {
            **worker_cell.measure(cell, installed, fixed_loops, options),
            "alone_per_s": alone_per_s,
        }

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
