"""`headway serve` beside others with 10,000 idle connections, 1 x 4 (1 x 1 without threads).

Beyond 15,000 connections, servers run as one process for each 15,000, and those without processes
are left out.

Each connection asks for hello once and is kept open. What the server's memory grew by meanwhile,
per connection; then, beside them, hello on new connections, latency with the connect, and once more
on some of the idle ones. Only memory of the server's own is counted, not the kernel's sockets.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import sitting
from figures import Figures, number, table, target
from installed import Installed
from peers import PEERS, Server
from places import PROGRAMS
from serving import serving
from side_by_side import (
    Sitting,
    add_options,
    headways,
    installed_peers,
    is_peer,
    spread_text,
)

from headway.output.claim import Statement
from headway.output.statistics import percentile
from headway.programs.processes import ProgramError, Window
from headway_lab.setting import STOCK, started

NAME = "server_idle"
CONNECTIONS = 10_000
THREADS = 4
# A process seldom may have more than 20,000 descriptors. Servers share connections unevenly.
CONNECTIONS_PER_PROCESS = 15_000
# Descriptors beyond the connections, for a server's other files and its reserve.
SPARE_DESCRIPTORS = 1_000
# The first requests fill buffers and caches, whose memory is not that of idle connections.
WARM_UP_CONNECTIONS = 200

# Headway's target.
BYTES_PER_CONNECTION = 8192.0

HEADINGS = (
    "server",
    "idle",
    "RSS before MB",
    "bytes/connection",
    "hello answered",
    "p50 ms",
    "p99 ms",
    "idle answered",
)


class Cell(NamedTuple):
    connections: int
    server: Server

    def parameters(self) -> dict[str, Any]:
        return {"connections": self.connections, **self.server.parameters()}

    def __str__(self) -> str:
        return str(self.server)


def processes_for(connections: int) -> int:
    return math.ceil(connections / CONNECTIONS_PER_PROCESS)


def raise_descriptor_limit(connections: int) -> None:
    """Raises the limit, which servers inherit. Only root may exceed the hard limit."""
    wanted = min(connections, CONNECTIONS_PER_PROCESS) + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        limit = max(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(limit, 2 * wanted)), limit))
    except (ValueError, PermissionError):
        raise ProgramError(
            f"--connections {connections} needs {wanted} open files for each process, and the "
            f"hard limit is {hard} (ulimit -Hn)",
            2,
        ) from None


def measure_cell(cell: Cell, installed: Installed, seconds: float) -> dict[str, float]:
    script = str(PROGRAMS / "idle_client.py")
    with serving(cell.server, "hello", installed.bin) as served:

        def client(connections: int, first: int = 0) -> Any:
            words = STOCK.command(script, str(served.port), str(connections), str(first))
            return started(words, "idle_client.py")

        with client(WARM_UP_CONNECTIONS) as warm_up:
            warm_up.answer()
        before_bytes = served.rss_bytes()
        with ExitStack() as visitors:
            idle = 0
            for first in range(0, cell.connections, CONNECTIONS_PER_PROCESS):
                number = min(CONNECTIONS_PER_PROCESS, cell.connections - first)
                visitor = visitors.enter_context(client(number, first))
                idle += visitor.answer()["idle"]
            after_bytes = served.rss_bytes()
            # One client asks beside the connections of all.
            visitor.measure(Window.after(0.0, seconds))
            answer = visitor.answer()
    latencies_s = answer["latencies_s"]
    return {
        "idle_connections": idle,
        "rss_before_bytes": before_bytes,
        "per_connection_bytes": (after_bytes - before_bytes) / idle if idle else float("nan"),
        "hello_answered_share": len(latencies_s) / max(1, answer["fresh_asked"]),
        "p50_s": percentile(latencies_s, 0.5),
        "p99_s": percentile(latencies_s, 0.99),
        "idle_answered_share": answer["idle_answered"] / max(1, answer["idle_asked"]),
    }


def print_table(figures: Figures[Cell], cells: Sequence[Cell]) -> None:
    lines = []
    for cell in cells:
        lines.append(
            (
                str(cell.server),
                number(figures.median(cell, "idle_connections")),
                number(figures.median(cell, "rss_before_bytes") / 1e6),
                spread_text(figures.values(cell, "per_connection_bytes")),
                percent(figures.median(cell, "hello_answered_share")),
                number(figures.median(cell, "p50_s") * 1e3),
                number(figures.median(cell, "p99_s") * 1e3),
                percent(figures.median(cell, "idle_answered_share")),
            )
        )
    print(table(HEADINGS, lines, names=1))
    print(
        "idle: connections that were answered once and kept open, at most as many as asked for.\n"
        "Medians over rounds, with their range; latencies with the connect. RSS is of all the\n"
        "server's processes."
    )


def percent(share: float) -> str:
    return f"{share:.0%}"


def targets_of(figures: Figures[Cell], cells: Sequence[Cell]) -> list[Statement]:
    targets = []
    for cell in cells:
        if is_peer(cell):
            continue
        each = figures.median(cell, "per_connection_bytes")
        name = f"{cell}, {cell.connections} idle connections"
        targets += [
            target(f"{name}: bytes for each", each, BYTES_PER_CONNECTION, at_most=True),
            target(
                f"{name}: share of them that there were",
                figures.median(cell, "idle_connections") / cell.connections,
                1.0,
            ),
            target(
                f"{name}: share of hello answered",
                figures.median(cell, "hello_answered_share"),
                1.0,
            ),
            target(
                f"{name}: share of idle ones that were answered again",
                figures.median(cell, "idle_answered_share"),
                1.0,
            ),
        ]
    return targets


def servers(installed: Installed, options: argparse.Namespace, processes: int = 1) -> list[Server]:
    threaded = installed.servers(processes, THREADS)
    others = [
        server for server in installed.servers(processes, 1) if not PEERS[server.name].has_threads
    ]
    return [*headways(options, processes, THREADS), *threaded, *others]


def measure(options: argparse.Namespace) -> sitting.Experiments:
    raise_descriptor_limit(options.connections)
    installed = installed_peers(options)
    found = Sitting(NAME, installed)
    processes = processes_for(options.connections)
    cells = [Cell(options.connections, each) for each in servers(installed, options, processes)]
    measure_with = partial(measure_cell, installed=installed, seconds=options.seconds)
    cells = found.run(options.rounds, cells, measure_with)
    print_table(found.figures, cells)
    return found.conclude(targets_of(found.figures, cells), Cell.parameters)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=3, seconds=2.0, quick_seconds=1.0, policies=())
    parser.add_argument(
        "--connections",
        type=sitting.at_least_one,
        default=CONNECTIONS,
        metavar="N",
        help=f"how many idle connections (default: {CONNECTIONS})",
    )
    add_options(parser)
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
