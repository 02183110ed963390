"""How cost grows: with threads that wait for the GIL, with connections, and with bytes.

  waiters  a thread that sleeps for 0.2 ms again and again beside threads that compute: how late it
           continues, which is the time to wake up and to take the GIL. The processor time of the
           process. Then, with these threads idle, the time of a snapshot and of its report.
  idle     connections that are kept open without a request: memory for each, and the latency of
           requests on new connections beside them
  active   connections that all send hello again and again (wrk): requests/s and latency
  download, upload, headers
           bytes of a response's body, of a request's body, and of one header field: latency and
           bytes a second, one request after the other over one connection

Servers run as one process with four threads, except those that have no threads. With more than
15,000 idle connections they run as several processes, for all sizes.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import load_cell
import server_idle
import sitting
import wrk
from figures import Figures, number, table, target
from installed import Installed
from peers import Server
from places import PROGRAMS
from serving import serving
from side_by_side import Sitting, add_options, installed_peers

from headway.output.claim import Statement
from headway.output.statistics import percentile
from headway.programs.processes import Window
from headway_lab.setting import STOCK, Setting, program, started, stock_and

NAME = "scaling"
WARM_UP_S = 0.3
KB, MB = 1_000, 1_000_000
SIZES: dict[str, tuple[int, ...]] = {
    "waiters": (2, 10, 100, 1_000),
    "idle": (10, 100, 1_000, 10_000),
    "active": (10, 100, 1_000),
    "download": (0, KB, 100 * KB, MB, 10 * MB, 100 * MB),
    "upload": (0, KB, 100 * KB, MB, 10 * MB, 100 * MB),
    "headers": (10, 100, KB, 8 * KB),
}
BY_BYTES = ("download", "upload", "headers")
# The p50 of the wait beside the most threads, of that beside the fewest.
FLAT = 1.5

BODY_HEADINGS = {
    "p50_s": ("p50 ms", 1e3),
    "p99_s": ("p99 ms", 1e3),
    "bytes_per_s": ("MB/s", 1e-6),
}
# For each figure of a part: the heading of its column, and the factor to the unit shown.
HEADINGS = {
    "waiters": {
        "late_p50_s": ("late p50 us", 1e6),
        "late_p99_s": ("p99 us", 1e6),
        "late_max_s": ("longest ms", 1e3),
        "very_late": ("over 100 ms", 1),
        "turns_per_s": ("turns/s", 1.0),
        "cpu_cores": ("cores", 1.0),
        "snapshot_s": ("snapshot ms", 1e3),
        "report_s": ("report ms", 1e3),
    },
    "idle": {
        "per_connection_bytes": ("bytes each", 1.0),
        "p50_s": ("new: p50 ms", 1e3),
        "p99_s": ("p99 ms", 1e3),
        "idle_connections": ("answered", 1.0),
    },
    "active": {
        "requests_per_s": ("requests/s", 1.0),
        "p50_s": ("p50 ms", 1e3),
        "p99_s": ("p99 ms", 1e3),
        "rss_bytes": ("RSS MB", 1e-6),
    },
    **dict.fromkeys(BY_BYTES, BODY_HEADINGS),
}

# A user notices a delay of this length.
VERY_LATE_S = 0.1


class Cell(NamedTuple):
    """`subject` is a policy, or a server's name and shape."""

    part: str
    size: int
    subject: str

    def __str__(self) -> str:
        return f"{self.part}, {self.size:,}: {self.subject}"


Measure = Callable[[int, float], dict[str, float]]


def waiters(setting: Setting, count: int, seconds: float) -> dict[str, float]:
    measured = ["measured"] if setting.policy else []
    with program(setting, "waiting_crowd", str(count), *measured, folder=PROGRAMS) as running:
        running.answer()
        running.measure(Window.after(WARM_UP_S, seconds))
        answer = running.answer()
    late_s = answer.pop("late_s")
    return {
        "turns_per_s": len(late_s) / seconds,
        "late_p50_s": percentile(late_s, 0.5),
        "late_p99_s": percentile(late_s, 0.99),
        "late_max_s": max(late_s, default=math.nan),
        "very_late": sum(each > VERY_LATE_S for each in late_s),
        **answer,
    }


def idle(server: Server, installed: Installed, count: int, seconds: float) -> dict[str, float]:
    return server_idle.measure_cell(server_idle.Cell(count, server), installed, seconds)


def active(server: Server, installed: Installed, count: int, seconds: float) -> dict[str, float]:
    with serving(server, "hello", installed.bin) as served:
        wrk.load(served.port, "/", load_cell.WARM_UP_S, connections=count)
        return load_cell.weigh(served, "/", seconds, connections=count)


def of_size(
    kind: str, server: Server, installed: Installed, size: int, seconds: float
) -> dict[str, float]:
    script = str(PROGRAMS / "sized_client.py")
    with serving(server, "bodies", installed.bin) as served:
        words = STOCK.command(script, str(served.port), kind, str(size))
        with started(words, "sized_client.py") as client:
            client.answer()
            client.measure(Window.after(WARM_UP_S, seconds))
            latencies_s = client.answer()["latencies_s"]
    return {
        "p50_s": percentile(latencies_s, 0.5),
        "p99_s": percentile(latencies_s, 0.99),
        "bytes_per_s": size * len(latencies_s) / sum(latencies_s),
    }


def subjects(
    part: str, sizes: Sequence[int], options: argparse.Namespace, installed: Installed
) -> dict[str, Measure]:
    """Returns the measurements of a part, by the names of their subjects."""
    if part == "waiters":
        settings = stock_and(["interval", *(options.policy or ("priority", "deadline"))])
        return {setting.name: partial(waiters, setting) for setting in settings}
    processes = server_idle.processes_for(max(sizes)) if part == "idle" else 1
    servers = server_idle.servers(installed, options, processes)
    measure = {"idle": idle, "active": active}.get(part) or partial(of_size, part)
    return {str(server): partial(measure, server, installed) for server in servers}


class Scaling:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        needs_servers = any(part != "waiters" for part in options.part)
        self.installed = installed_peers(options) if needs_servers else Installed([])
        self.found = Sitting(NAME, self.installed)
        self.figures: Figures[Cell] = self.found.figures

    def run(self) -> sitting.Experiments:
        targets: list[Statement] = []
        for part in self.options.part:
            sizes = self.options.size or SIZES[part]
            measures = subjects(part, sizes, self.options, self.installed)
            if part == "idle":
                server_idle.raise_descriptor_limit(max(sizes))
            cells = [Cell(part, size, subject) for size in sizes for subject in measures]
            self.found.run(self.options.rounds, cells, partial(self.measure, measures))
            print(f"\n{part}")
            print(self.table(part, sizes, measures))
            if part == "waiters":
                targets += self.flat(sizes)
        return self.found.end(targets, Cell._asdict)

    def measure(self, measures: dict[str, Measure], cell: Cell) -> dict[str, float]:
        return measures[cell.subject](cell.size, self.options.seconds)

    def table(self, part: str, sizes: Sequence[int], names: Iterable[str]) -> str:
        headings = HEADINGS[part]
        rows = []
        for name in names:
            for size in sizes:
                cell = Cell(part, size, name)
                values = (
                    self.figures.median(cell, figure) * scale
                    for figure, (_, scale) in headings.items()
                )
                rows.append((name, f"{size:,}", *map(number, values)))
        return table(("", part, *(text for text, _ in headings.values())), rows, names=1)

    def flat(self, sizes: Sequence[int]) -> list[Statement]:
        return [
            target(
                f"{policy}: p50 beside {sizes[-1]:,} threads, of that beside {sizes[0]:,}",
                self.figures.ratio(
                    Cell("waiters", sizes[-1], policy),
                    Cell("waiters", sizes[0], policy),
                    "late_p50_s",
                ),
                FLAT,
                at_most=True,
            )
            for policy in self.options.policy or ("priority",)
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=3, seconds=2.0, quick_seconds=1.0, policies=())
    parser.add_argument(
        "--part",
        nargs="+",
        choices=tuple(SIZES),
        default=tuple(SIZES),
        metavar="NAME",
        help="what grows; see above (default: all)",
    )
    parser.add_argument(
        "--size",
        type=sitting.at_least_one,
        nargs="+",
        metavar="N",
        help="how many threads, connections or bytes (default: "
        + "; ".join(f"{part} {' '.join(map(str, sizes))}" for part, sizes in SIZES.items())
        + ")",
    )
    add_options(parser, peers=("granian", "gunicorn"))
    return sitting.hold(NAME, parser, lambda options: Scaling(options).run(), arguments)


if __name__ == "__main__":
    sys.exit(main())
