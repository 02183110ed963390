"""`headway serve` beside other threaded servers, 1 x 4: light requests beside heavy pages.

Visitors loop on a page of 200 ms of pure Python, while hello is asked for in an open loop; its
latency counts from the intended start. A server that answers fewer than it was asked is said to
saturate, and at what rate. Peers run at CPython's switch interval and at a short one, Headway under
each of its policies.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import sitting
from figures import Figures, number, table, target
from installed import Installed
from peers import HEADWAY, PEERS, Server
from serving import serving
from side_by_side import Sitting, add_options, best, installed_peers, is_peer, spread_text
from visits import add_options as add_visit_options
from visits import answered_text, heavy_page_loops, sustains, visit

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement

NAME = "server_mixed"
THREADS = 4
LIGHT_PER_S = (200.0, 5.0)
HEAVY_VISITORS = (1, 2)
POLICIES = ("interval", "priority", "deadline")
SHORT_INTERVAL_S = 0.0001
THREADED_PEERS = tuple(name for name, peer in PEERS.items() if peer.has_threads)

# Headway's targets, by light requests per second.
P99_MS = {200.0: 1.0}
TIMES_BETTER_P99 = {5.0: {DEFAULT_SWITCH_INTERVAL_S: 10.0, SHORT_INTERVAL_S: 3.0}}
HEAVY_SHARE_OF_BEST = {5.0: 0.95}

HEADINGS = (
    "light/s",
    "heavy",
    "server",
    "answered/s",
    "p50 ms",
    "p99 ms",
    "max ms",
    "heavy/s",
    "/best peer's",
)


class Cell(NamedTuple):
    light_per_s: float
    heavy_visitors: int
    server: Server

    def parameters(self) -> dict[str, Any]:
        return {
            "light_per_s": self.light_per_s,
            "heavy_visitors": self.heavy_visitors,
            **self.server.parameters(),
        }

    def __str__(self) -> str:
        return f"{self.light_per_s:g} light/s beside {self.heavy_visitors}, {self.server.label}"


def servers(installed: Installed, policies: Sequence[str]) -> list[Server]:
    ours = [Server(HEADWAY, 1, THREADS, policy) for policy in policies]
    peers = installed.servers(1, THREADS)
    intervals = TIMES_BETTER_P99[5.0]
    return ours + [p._replace(switch_interval_s=interval) for p in peers for interval in intervals]


def default_policy(installed: Installed) -> str:
    """The default policy of `headway serve`."""
    with serving(Server(HEADWAY, 1, THREADS), "pages", installed.bin) as served:
        (page,) = served.gil_pages().values()
        policy: str = page["policy"]
        return policy


def measure_cell(
    cell: Cell, installed: Installed, loops: int, options: argparse.Namespace
) -> dict[str, float]:
    with serving(cell.server, "pages", installed.bin, PAGE_LOOPS=str(loops)) as served:
        served.gil_pages()
        return visit(
            served.port,
            cell.light_per_s,
            options.connections,
            cell.heavy_visitors,
            options.seconds,
        )


def alike(cells: Sequence[Cell]) -> dict[tuple[float, int], list[Cell]]:
    """Cells that are compared with each other: those under the same load."""
    groups: dict[tuple[float, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.light_per_s, cell.heavy_visitors), []).append(cell)
    return groups


def print_table(figures: Figures[Cell], cells: Sequence[Cell]) -> None:
    lines = []
    for (light_per_s, heavy_visitors), group in alike(cells).items():
        busiest = best(figures, list(filter(is_peer, group)), "heavy_per_s")
        for cell in group:
            answered = figures.median(cell, "light_answered_per_s")
            share = figures.ratio(cell, busiest, "heavy_per_s") if busiest else float("nan")
            lines.append(
                (
                    f"{light_per_s:g}",
                    str(heavy_visitors),
                    cell.server.label,
                    answered_text(answered, light_per_s),
                    number(figures.median(cell, "p50_s") * 1e3),
                    spread_text(figures.values(cell, "p99_s"), 1e3),
                    number(figures.highest(cell, "max_s") * 1e3),
                    spread_text(figures.values(cell, "heavy_per_s")),
                    number(share),
                )
            )
    print(table(HEADINGS, lines, names=3))
    print(
        "heavy: visitors who loop on a page of 200 ms. Latencies are light requests', from the\n"
        "intended start; medians over rounds, with their range; max: of all. /best peer's: heavy\n"
        "pages, the median of the ratios round by round."
    )


def targets_of(figures: Figures[Cell], cells: Sequence[Cell]) -> list[Statement]:
    targets = []
    for (light_per_s, _), group in alike(cells).items():
        peers = list(filter(is_peer, group))
        for cell in group:
            if is_peer(cell):
                continue
            if light_per_s in P99_MS:
                p99_ms = figures.median(cell, "p99_s") * 1e3
                targets.append(
                    target(f"{cell}: p99", p99_ms, P99_MS[light_per_s], at_most=True, unit="ms")
                )
            targets += beside_peers(figures, cell, peers)
    return targets


def beside_peers(figures: Figures[Cell], cell: Cell, peers: Sequence[Cell]) -> list[Statement]:
    targets = []
    for interval_s, bound in TIMES_BETTER_P99.get(cell.light_per_s, {}).items():
        rivals = [
            peer
            for peer in peers
            if peer.server.switch_interval_s == interval_s
            and sustains(figures.median(peer, "light_answered_per_s"), cell.light_per_s)
        ]
        rival = best(figures, rivals, "p99_s", lowest=True)
        if rival is not None:
            times = figures.ratio(rival, cell, "p99_s")
            text = f"{cell}: p99, times better than {rival.server.label}"
            targets.append(target(text, times, bound))
    busiest = best(figures, peers, "heavy_per_s")
    if busiest is not None and cell.light_per_s in HEAVY_SHARE_OF_BEST:
        share = figures.ratio(cell, busiest, "heavy_per_s")
        text = f"{cell}: heavy pages/s of the best peer's ({busiest.server.label})"
        targets.append(target(text, share, HEAVY_SHARE_OF_BEST[cell.light_per_s]))
    return targets


def measure(options: argparse.Namespace) -> sitting.Experiments:
    installed = installed_peers(options)
    print(f"headway serve's default policy is {default_policy(installed)}")
    found = Sitting(NAME, installed)
    cells = [
        Cell(light_per_s, heavy_visitors, server)
        for light_per_s in options.light
        for heavy_visitors in options.heavy
        for server in servers(installed, options.policy)
    ]
    measure_with = partial(
        measure_cell, installed=installed, loops=heavy_page_loops(), options=options
    )
    cells = found.run(options.rounds, cells, measure_with)
    print_table(found.figures, cells)
    return found.conclude(targets_of(found.figures, cells), Cell.parameters)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=5, seconds=20.0, quick_seconds=4.0, policies=POLICIES)
    add_visit_options(parser, LIGHT_PER_S)
    sitting.add_threads(parser, "--heavy", HEAVY_VISITORS, "visitors of the heavy page")
    add_options(parser, THREADED_PEERS)
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
