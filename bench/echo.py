"""The convoy: an echo server's requests a second beside CPU-bound threads of its own process.

One client, a process of its own, sends 1 byte with TCP_NODELAY, waits for it and sends the next.
The yardstick is what an operating system's scheduler does for the same server with as many
CPU-bound *processes* beside it. What the CPU-bound threads get done is held against one such thread
alone, less what the I/O-bound thread and the handoffs took of the GIL.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from functools import partial

import cache_line
import echo_cell
import sitting
from echo_cell import Cell
from figures import Figures, number, print_targets, ratio, table, target

from headway.output.claim import Statement
from headway_lab.setting import STOCK, Setting

NAME = "echo"
SERVER = "echo_server"
CPU_THREADS = (0, 1, 2, 4, 8)
BEST_INTERVAL_S = 0.00001

# Headway's targets, by number of CPU-bound threads where they depend on it.
SHARE_OF_PROCESSES = {1: 0.8, 2: 0.9, 4: 1.2, 8: 1.5}
OTHER_POLICY_SHARE = 0.8
TIMES_STOCK = 100.0
TIMES_BEST_INTERVAL = 3.0
P99_MS = 0.3
WORK_SHARE_OF_LEFT = 0.9
HANDOFF_SHARE = {1: 0.35}

HEADINGS: tuple[str, ...] = (
    "CPU-bound",
    "row",
    "requests/s",
    "/processes",
    "/stock",
    "p50 ms",
    "p99 ms",
    "max ms",
    "CPU work",
    "bound",
    "handoff",
    "line ns",
)
LEGEND = """\
/processes, /stock: medians of the ratios round by round. p50, p99: medians over rounds;
max: of all. CPU work: of all CPU-bound threads together, as a share of one thread's alone;
bound: 0.9 x (1 - held by the others - handoff), with the GIL's time in shares of the
window; handoff: such a share; line: the round trip of a cache line between two cores, right
before the cell. On a virtual machine it may change from cell to cell.
"""


class Rows:
    """The cells that belong to one number of CPU-bound threads."""

    def __init__(self, cpu_threads: int, options: argparse.Namespace) -> None:
        self.processes = Cell(cpu_threads, "processes", STOCK)
        self.stock = Cell(cpu_threads, "threads", STOCK)
        self.best = Cell(cpu_threads, "threads", Setting(None, options.best_interval))
        self.policies = {
            policy: Cell(cpu_threads, "threads", Setting(policy, STOCK.switch_interval_s))
            for policy in options.policy
        }
        yardstick = [self.processes] if cpu_threads else []
        self.all = [*yardstick, self.stock, self.best, *self.policies.values()]


def print_table(figures: Figures[Cell], counts: dict[int, Rows]) -> None:
    lines = []
    for cpu_threads, rows in counts.items():
        for cell in rows.all:
            shown = (
                figures.median(cell, "requests_per_s"),
                figures.ratio(cell, rows.processes, "requests_per_s"),
                figures.ratio(cell, rows.stock, "requests_per_s"),
                figures.median(cell, "p50_s") * 1e3,
                figures.median(cell, "p99_s") * 1e3,
                figures.highest(cell, "max_s") * 1e3,
                figures.median(cell, "work_share"),
                figures.median(cell, "left_share") * WORK_SHARE_OF_LEFT,
                figures.median(cell, "handoff_share"),
                figures.median(cell, "line_s") * 1e9,
            )
            lines.append((str(cpu_threads), cell.row, *map(number, shown)))
    print(table(HEADINGS, lines))
    print(LEGEND)


def targets_of(figures: Figures[Cell], cpu_threads: int, rows: Rows) -> list[Statement]:
    targets = []
    of_processes = SHARE_OF_PROCESSES.get(cpu_threads)
    for policy, cell in rows.policies.items():
        name = f"{policy}, {cpu_threads} CPU-bound"
        compared = [
            ("requests/s of the processes'", rows.processes, of_processes),
            ("times stock", rows.stock, TIMES_STOCK),
            ("times stock at its best interval", rows.best, TIMES_BEST_INTERVAL),
        ]
        targets += [
            target(f"{name}: {text}", figures.ratio(cell, other, "requests_per_s"), bound)
            for text, other, bound in compared
            if bound is not None
        ]
        p99_ms = figures.median(cell, "p99_s") * 1e3
        targets.append(target(f"{name}: p99", p99_ms, P99_MS, at_most=True, unit="ms"))
        work = figures.median(cell, "work_of_left")
        targets.append(target(f"{name}: CPU work of what was left", work, WORK_SHARE_OF_LEFT))
        if cpu_threads in HANDOFF_SHARE:
            handoff = figures.median(cell, "handoff_share")
            bound = HANDOFF_SHARE[cpu_threads]
            targets.append(target(f"{name}: handoff", handoff, bound, at_most=True))
    return targets


def compare_policies(figures: Figures[Cell], counts: Sequence[Rows]) -> list[Statement]:
    """The best policy is compared with the yardstick, and each other policy with the best one."""
    names = list(counts[0].policies) if counts else []

    def mean_logarithm(policy: str) -> float:
        rates = [figures.median(rows.policies[policy], "requests_per_s") for rows in counts]
        return math.fsum(math.log(max(rate, 1e-9)) for rate in rates)

    best = max(names, key=mean_logarithm, default="")
    return [
        target(
            f"{other}, {cell.cpu_threads} CPU-bound: requests/s of {best}'s",
            figures.ratio(cell, rows.policies[best], "requests_per_s"),
            OTHER_POLICY_SHARE,
        )
        for other in names
        if other != best
        for rows in counts
        for cell in (rows.policies[other],)
    ]


def measure_cell(cell: Cell, seconds: float) -> dict[str, float]:
    line_s = cache_line.round_trip_s()
    return {"line_s": line_s, **echo_cell.measure(cell, seconds, SERVER)}


def measure(options: argparse.Namespace) -> sitting.Experiments:
    counts = {count: Rows(count, options) for count in dict.fromkeys(options.cpu_threads)}
    cells = [cell for rows in counts.values() for cell in rows.all]
    figures: Figures[Cell] = Figures()
    measured = partial(measure_cell, seconds=options.seconds)
    for cell, found in sitting.rounds(NAME, options.rounds, cells, measured):
        if cell.cpu_threads and "left_share" in found:
            found["work_of_left"] = ratio(found["work_share"], found["left_share"])
        figures.record(cell, **found)
    print_table(figures, counts)
    beside = {count: rows for count, rows in counts.items() if count}
    targets = [t for count, rows in beside.items() for t in targets_of(figures, count, rows)]
    targets += compare_policies(figures, list(beside.values()))
    print_targets(targets)
    return figures.experiments(NAME, Cell.parameters, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=5, seconds=1.0, quick_seconds=0.4)
    sitting.add_threads(parser, "--cpu-threads", CPU_THREADS, "how many CPU-bound threads")
    parser.add_argument(
        "--best-interval",
        type=sitting.positive_seconds,
        default=BEST_INTERVAL_S,
        metavar="S",
        help="the switch interval at which stock does best (default: 0.00001)",
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
