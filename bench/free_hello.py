"""hello world in a free-threaded build: called in process by threads, and served over sockets.

In process no server takes part (see programs/hello_threads.py): it is the ceiling that the build
itself sets to two threads. Over sockets Headway is held against peers on the same build, with one
process and four threads each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import load_cell
import sitting
from builds import Build
from figures import Figures, number, print_targets, table, target
from installed import Installed
from load_cell import Cell
from peers import HEADWAY, Server
from places import PROGRAMS
from side_by_side import Sitting, is_peer, ratio_text, spread_text

from headway.programs.processes import Window
from headway_lab.setting import started

THREADS = (1, 2)
SHAPE = (1, 4)
PEERS = ("granian", "gunicorn")
CALLS_WARM_UP_S = 0.2

# Targets: calls of two threads as a multiple of one's, and requests as a multiple of each peer's.
TIMES_ONE_THREAD = 1.7
TIMES_PEER = 1.0

CALLS_HEADINGS = ("threads", "", "calls/s", "/one thread", "CPU us/call", "/one thread")
HEADINGS = ("server", "requests/s", "/headway", "p50 ms", "p99 ms", "CPU us/request", "RSS MB")


class Callers(NamedTuple):
    """Threads that call hello in process."""

    threads: int

    def parameters(self) -> dict[str, Any]:
        return {"threads": self.threads}

    def __str__(self) -> str:
        return f"hello in process, free-threaded, threads: {self.threads}"


def measure_callers(callers: Callers, build: Build, seconds: float) -> dict[str, float]:
    words = [str(build.python), "-X", "gil=0", str(PROGRAMS / "hello_threads.py")]
    with started([*words, str(callers.threads)], str(callers)) as program:
        program.answer()
        program.measure(Window.after(CALLS_WARM_UP_S, seconds))
        found: dict[str, float] = program.answer()
    return found


def measure_calls(name: str, build: Build, options: argparse.Namespace) -> sitting.Experiments:
    name = f"{name} hello_calls"
    figures: Figures[Callers] = Figures()
    cells = [Callers(threads) for threads in THREADS]
    call = partial(measure_callers, build=build, seconds=options.seconds)
    for cell, found in sitting.rounds(name, options.rounds, cells, call):
        figures.record(cell, **found)
    one, two = cells
    lines = [
        (
            str(cell.threads),
            "in process",
            spread_text(figures.values(cell, "calls_per_s")),
            ratio_text(figures, cell, one, "calls_per_s"),
            spread_text(figures.values(cell, "cpu_per_call_s"), 1e6),
            ratio_text(figures, cell, one, "cpu_per_call_s"),
        )
        for cell in cells
    ]
    print(table(CALLS_HEADINGS, lines))
    print("No server takes part: what CPython and the application leave to two threads.\n")
    times = figures.ratio(two, one, "calls_per_s")
    targets = [target(f"{two}: calls/s of one thread's", times, TIMES_ONE_THREAD)]
    print_targets(targets)
    return figures.experiments(name, Callers.parameters, targets)


def print_table(figures: Figures[Cell], cells: Sequence[Cell], ours: Cell | None) -> None:
    lines = [
        (
            str(cell.server),
            spread_text(figures.values(cell, "requests_per_s")),
            ratio_text(figures, cell, ours, "requests_per_s"),
            number(figures.median(cell, "p50_s") * 1e3),
            number(figures.median(cell, "p99_s") * 1e3),
            spread_text(figures.values(cell, "cpu_per_request_s"), 1e6),
            number(figures.median(cell, "rss_bytes") / 1e6),
        )
        for cell in cells
    ]
    print(table(HEADINGS, lines, names=1))
    print("Medians over rounds, with their range; RSS of all of a server's processes.")


def measure_sockets(
    name: str, build: Build, installed: Installed, options: argparse.Namespace
) -> sitting.Experiments:
    found = Sitting(f"{name} hello_sockets", installed)
    ours = Cell("hello", "/", Server(HEADWAY, *SHAPE, free_threading=True, python=build.python))
    peers = [
        Cell("hello", "/", server._replace(free_threading=True))
        for server in installed.servers(*SHAPE)
    ]
    measure_cell = partial(load_cell.measure, installed=installed, options=options)
    cells = found.run(options.rounds, [ours, *peers], measure_cell)
    there = ours if ours in cells else None
    print_table(found.figures, cells, there)
    targets = [
        target(
            f"{ours}: requests/s of {cell.server.name}'s",
            found.figures.ratio(ours, cell, "requests_per_s"),
            TIMES_PEER,
        )
        for cell in cells
        if is_peer(cell) and there is not None
    ]
    return found.conclude(targets, Cell.parameters)
