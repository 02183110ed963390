"""`headway serve` beside other WSGI servers at hello world, loaded by wrk: 10 connections.

Requests a second, latency, CPU time for each request (user and system time of all the server's
processes) and memory. Access logs are off everywhere; Headway's meter is on. A server is compared
round by round with the peer that is fastest in the same shape, processes x threads. On a machine of
few cores wrk takes one of them, and where it is the limit the CPU time tells servers apart.

The floor is no server: it answers fixed bytes without Python, with one recv and one send a request
as everybody. What it reaches is what the kernel and wrk leave to reach.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

import load_cell
import sitting
import wrk
from figures import number, table, target
from load_cell import Cell
from peers import FLOOR, Server
from side_by_side import (
    Sitting,
    add_options,
    best,
    headways,
    installed_peers,
    is_headway,
    is_peer,
    ratio_text,
    spread_text,
)

from headway.output.claim import Statement

NAME = "server_hello"
SHAPES = ("1x1", "1x4", "2x1")

# Headway's targets: against the fastest peer in the same shape, and against itself at 1x1.
TIMES_FASTEST = {("hello", "1x1"): 1.15, ("hello", "1x4"): 1.1}
TIMES_LESS_CPU_THAN_FASTEST = {("hello", "1x1"): 1.3}
SHARE_OF_ONE_THREAD = 0.95

HEADINGS = (
    "page",
    "server",
    "requests/s",
    "/fastest peer",
    "p50 ms",
    "p99 ms",
    "CPU us/request",
    "wrk's CPU",
    "RSS MB",
)


def shape(text: str) -> tuple[int, int]:
    processes, x, threads = text.partition("x")
    if not (x and processes.isdecimal() and threads.isdecimal()):
        raise argparse.ArgumentTypeError(f"found {text!r}; it is processes x threads, such as 2x5")
    return sitting.positive_thread_count(processes), sitting.positive_thread_count(threads)


def alike(cells: Sequence[Cell]) -> dict[tuple[str, str], list[Cell]]:
    """Cells that are compared with each other, by application and shape."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.application, cell.server.shape), []).append(cell)
    return groups


def fastest_peer(found: Sitting, cells: Sequence[Cell]) -> Cell | None:
    return best(found.figures, list(filter(is_peer, cells)), "requests_per_s")


def print_table(found: Sitting, cells: Sequence[Cell]) -> None:
    figures, lines = found.figures, []
    for (application, _), group in alike(cells).items():
        fastest = fastest_peer(found, group)
        for cell in group:
            shown = (
                spread_text(figures.values(cell, "requests_per_s")),
                ratio_text(figures, cell, fastest, "requests_per_s"),
                number(figures.median(cell, "p50_s") * 1e3),
                number(figures.median(cell, "p99_s") * 1e3),
                spread_text(figures.values(cell, "cpu_per_request_s"), 1e6),
                number(figures.median(cell, "wrk_cpu_share")),
                number(figures.median(cell, "rss_bytes") / 1e6),
            )
            lines.append((application, str(cell.server), *shown))
    print(table(HEADINGS, lines))
    print(
        "Medians over rounds, with their range. /fastest peer: the ratios round by round to the\n"
        "fastest in the same shape. wrk's CPU: of one core; near 1 it is the limit."
    )


def print_ceiling(found: Sitting, cells: Sequence[Cell]) -> None:
    """Prints what a server can reach that makes one recv and one send for each request."""
    for group in alike(cells).values():
        fastest = fastest_peer(found, group)
        for floor in (cell for cell in group if cell.server.name == FLOOR and fastest is not None):
            more = ratio_text(found.figures, floor, fastest, "requests_per_s")
            less = ratio_text(found.figures, fastest, floor, "cpu_per_request_s")
            print(
                f"The floor makes {more} of the fastest peer's requests/s, whose\n"
                f"CPU time a request is {less} of the floor's: there is no more to reach here."
            )


def beside_peers(found: Sitting, cell: Cell, peers: Sequence[Cell]) -> list[Statement]:
    """The targets of one of Headway's cells against the peers' cells of the same shape."""
    figures, shape = found.figures, cell.server.shape
    fastest = fastest_peer(found, peers)
    cheapest = best(figures, peers, "cpu_per_request_s", lowest=True)
    if fastest is None or cheapest is None:
        return []
    times_fastest = figures.ratio(cell, fastest, "requests_per_s")
    of_fastest = figures.ratio(fastest, cell, "cpu_per_request_s")
    of_cheapest = figures.ratio(cheapest, cell, "cpu_per_request_s")
    return [
        target(
            f"{cell}: requests/s of the fastest peer's ({fastest.server})",
            times_fastest,
            TIMES_FASTEST.get((cell.application, shape), 1.0),
        ),
        target(
            f"{cell}: the fastest peer's CPU time a request ({fastest.server}), times its own",
            of_fastest,
            TIMES_LESS_CPU_THAN_FASTEST.get((cell.application, shape), 1.0),
        ),
        target(
            f"{cell}: the cheapest peer's CPU time a request ({cheapest.server}), times its own",
            of_cheapest,
            1.0,
        ),
    ]


def beside_one_thread(found: Sitting, cell: Cell, cells: Sequence[Cell]) -> list[Statement]:
    """The targets of one of Headway's cells with threads against one thread: its own, and the
    fastest peer's, since a peer may have no threads."""
    one_thread = [
        other
        for other in cells
        if other.application == cell.application and other.server.shape == "1x1"
    ]
    targets = []
    fastest = fastest_peer(found, one_thread)
    if fastest is not None:
        times = found.figures.ratio(cell, fastest, "requests_per_s")
        text = f"{cell}: requests/s of the fastest peer's with one thread ({fastest.server})"
        targets.append(target(text, times, TIMES_FASTEST.get((cell.application, "1x4"), 1.0)))
    alone = cell._replace(server=cell.server._replace(threads=1))
    if alone in one_thread:
        share = found.figures.ratio(cell, alone, "requests_per_s")
        text = f"{cell}: requests/s of its own with one thread"
        targets.append(target(text, share, SHARE_OF_ONE_THREAD))
    return targets


def targets_of(found: Sitting, cells: Sequence[Cell]) -> list[Statement]:
    targets = []
    for group in alike(cells).values():
        peers = list(filter(is_peer, group))
        for cell in group:
            if is_headway(cell):
                targets += beside_peers(found, cell, peers)
                if cell.server.shape == "1x4":
                    targets += beside_one_thread(found, cell, cells)
    return targets


def measure_applications(
    name: str, applications: Sequence[str], options: argparse.Namespace
) -> sitting.Experiments:
    wrk.check()
    installed = installed_peers(options)
    found = Sitting(name, installed)
    cells = []
    for processes, threads in options.shape:
        servers = [*headways(options, processes, threads), *installed.servers(processes, threads)]
        cells += [Cell(app, "/", server) for app in applications for server in servers]
        if (processes, threads) == (1, 1) and "hello" in applications:
            cells.append(Cell("hello", "/", Server(FLOOR, 1, 1)))
    measure_cell = partial(load_cell.measure, installed=installed, options=options)
    cells = found.run(options.rounds, cells, measure_cell)
    print_table(found, cells)
    print_ceiling(found, cells)
    return found.conclude(targets_of(found, cells), Cell.parameters)


def add_shapes(parser: sitting.Parser, shapes: Sequence[str]) -> None:
    parser.add_argument(
        "--shape",
        type=shape,
        nargs="+",
        default=[shape(text) for text in shapes],
        metavar="PxT",
        help=f"processes x threads (default: {' '.join(shapes)})",
    )


def measure(options: argparse.Namespace) -> sitting.Experiments:
    return measure_applications(NAME, ["hello"], options)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=5, seconds=4.0, quick_seconds=1.0, policies=())
    add_shapes(parser, SHAPES)
    add_options(parser)
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
