"""`headway serve` beside other threaded servers in the shapes that mod_wsgi 6.0 was published with.

10 processes of 1 thread at CPython's switch interval, and 2 of 5 at 5, 2 and 0.1 ms; 10 requests at
once (wrk) for a page of 3 ms of Python, 1 ms of waiting and 1 KB. The workload has two readings:
`fixed` is the same work each time, `deadline` computes until 3 ms have passed on the clock, also
while other threads have the GIL. Only the first tells how much work gets done. The handoff share is
how much of the GIL's time went by between a drop and the take of a thread that waited.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import load_cell
import sitting
import wrk
from figures import Figures, number, ratio, table, target
from installed import Installed
from load_cell import Cell
from peers import HEADWAY, Server
from serving import serving
from side_by_side import (
    Sitting,
    add_options,
    best,
    headways,
    installed_peers,
    is_peer,
    ratio_text,
    spread_text,
)
from visits import page_loops

from headway.output.claim import Statement

NAME = "server_shapes"
WORKLOADS = ("fixed", "deadline")
FIXED_WORK_S = 0.003
# Processes, threads, switch interval.
SHAPES = ((10, 1, 0.005), (2, 5, 0.005), (2, 5, 0.002), (2, 5, 0.0001))
# The fastest peers with threads and processes; options can name the others.
PEERS = ("granian", "mod_wsgi")

# Headway's targets with fixed work: against its own 10 x 1, and against the best peer.
SHARE_OF_PROCESSES = {0.005: 0.97, 0.002: 0.97}
SHARE_OF_BEST_PEER = {0.0001: 1.0}

HEADINGS = (
    "workload",
    "shape",
    "server",
    "requests/s",
    "/its 10x1",
    "p50 ms",
    "p99 ms",
    "CPU ms/request",
    "RSS MB",
    "handoff",
)


def measure_cell(
    cell: Cell, installed: Installed, fixed_loops: int, options: argparse.Namespace
) -> dict[str, float]:
    environment = {"FIXED_LOOPS": str(fixed_loops)}
    with serving(cell.server, cell.application, installed.bin, **environment) as served:
        wrk.load(served.port, cell.path, load_cell.WARM_UP_S)
        before = served.gil_pages()
        found = load_cell.weigh(served, cell.path, options.seconds)
        after = served.gil_pages()
    if cell.server.name == HEADWAY:
        found["handoff_share"] = handoff_share(before, after)
    return found


def handoff_share(before: dict[int, dict[str, Any]], after: dict[int, dict[str, Any]]) -> float:
    """The handoff share of the time of all processes' GILs between two reports."""

    def passed_s(what: str) -> float:
        return math.fsum(
            page["gil"][what] - before[pid]["gil"][what] for pid, page in after.items()
        )

    return ratio(passed_s("handoff_s"), passed_s("wall_s"))


def of_processes(cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    """The cell of the same server with one thread per process."""
    processes, threads, switch_interval_s = SHAPES[0]
    server = cell.server._replace(
        processes=processes, threads=threads, switch_interval_s=switch_interval_s
    )
    alone = cell._replace(server=server)
    return alone if alone in cells else None


def print_table(figures: Figures[Cell], cells: Sequence[Cell]) -> None:
    lines = []
    for cell in cells:
        alone = of_processes(cell, cells)
        handoff = figures.median(cell, "handoff_share")
        lines.append(
            (
                cell.path.removeprefix("/"),
                f"{cell.server.shape} {cell.server.switch_interval_s * 1e3:g} ms",
                cell.server.name if cell.server.policy is None else f"headway {cell.server.policy}",
                spread_text(figures.values(cell, "requests_per_s")),
                ratio_text(figures, cell, alone, "requests_per_s"),
                number(figures.median(cell, "p50_s") * 1e3),
                number(figures.median(cell, "p99_s") * 1e3),
                number(figures.median(cell, "cpu_per_request_s") * 1e3),
                number(figures.median(cell, "rss_bytes") / 1e6),
                number(handoff),
            )
        )
    print(table(HEADINGS, lines, names=3))
    print(
        "Medians over rounds, with their range; /its 10x1: of the ratios round by round. handoff:\n"
        "a share of the GILs' time, which Headway alone can tell."
    )


def targets_of(figures: Figures[Cell], cells: Sequence[Cell]) -> list[Statement]:
    targets = []
    for cell in cells:
        interval_s = cell.server.switch_interval_s
        if is_peer(cell) or cell.path != "/fixed" or cell.server.threads == 1:
            continue
        alone = of_processes(cell, cells)
        if alone is not None and interval_s in SHARE_OF_PROCESSES:
            share = figures.ratio(cell, alone, "requests_per_s")
            text = f"{cell}: requests/s of its own 10x1"
            targets.append(target(text, share, SHARE_OF_PROCESSES[interval_s]))
        rivals = [other for other in cells if is_peer(other) and is_alike(other, cell)]
        rival = best(figures, rivals, "requests_per_s")
        if rival is not None and interval_s in SHARE_OF_BEST_PEER:
            share = figures.ratio(cell, rival, "requests_per_s")
            text = f"{cell}: requests/s of the best peer's ({rival.server.name})"
            targets.append(target(text, share, SHARE_OF_BEST_PEER[interval_s]))
    return targets


def is_alike(cell: Cell, other: Cell) -> bool:
    def shape(server: Server) -> tuple[int, int, float]:
        return server.processes, server.threads, server.switch_interval_s

    return cell.path == other.path and shape(cell.server) == shape(other.server)


def servers(installed: Installed, options: argparse.Namespace) -> list[Server]:
    found = []
    for processes, threads, switch_interval_s in SHAPES:
        ours = headways(options, processes, threads)
        found += [
            server._replace(switch_interval_s=switch_interval_s)
            for server in (*ours, *installed.servers(processes, threads))
        ]
    return found


def measure(options: argparse.Namespace) -> sitting.Experiments:
    wrk.check()
    installed = installed_peers(options)
    found = Sitting(NAME, installed)
    cells = [
        Cell("pages", f"/{workload}", server)
        for workload in options.workload
        for server in servers(installed, options)
    ]
    measure_with = partial(
        measure_cell,
        installed=installed,
        fixed_loops=page_loops(FIXED_WORK_S),
        options=options,
    )
    cells = found.run(options.rounds, cells, measure_with)
    print_table(found.figures, cells)
    return found.conclude(targets_of(found.figures, cells), Cell.parameters)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=5, seconds=4.0, quick_seconds=1.0, policies=())
    parser.add_argument(
        "--workload",
        nargs="+",
        choices=WORKLOADS,
        default=WORKLOADS,
        help="which reading of the published one (default: both)",
    )
    add_options(parser, PEERS)
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
