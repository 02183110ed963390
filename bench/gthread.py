"""gunicorn's gthread worker, 1 x 4: light requests beside visitors who loop on a heavy page.

Light requests come in an open loop and their latency counts from the intended start, so a server
that cannot keep up is not let off: where it answers fewer than it was asked, the row says at what
rate it saturates. The heavy page is 200 ms of pure Python when it has the machine to itself: the
same number of loops in all rows.
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import sitting
from figures import Figures, number, print_targets, table, target
from places import PROGRAMS
from visits import add_options, answered_text, heavy_page_loops, visit

from headway.output.claim import Statement
from headway.programs.processes import ChildProgram, ProgramError
from headway_lab.setting import STOCK, Setting, started, stock_and

NAME = "gthread"
THREADS = 4
HEAVY_VISITORS = 2
LIGHT_PER_S = (100.0, 5.0)
START_TIMEOUT_S = 20.0

# Headway's targets, by light requests per second.
P99_MS = {100.0: 3.0}
TIMES_BETTER_P99 = {5.0: 20.0}
HEAVY_SHARE_OF_STOCK = {5.0: 0.95}

HEADINGS = ("light/s", "row", "answered/s", "p50 ms", "p99 ms", "max ms", "heavy/s", "heavy/stock")


class Cell(NamedTuple):
    light_per_s: float
    setting: Setting

    def parameters(self) -> dict[str, Any]:
        return {
            "light_per_s": self.light_per_s,
            "heavy_visitors": HEAVY_VISITORS,
            **self.setting.parameters(),
        }

    def __str__(self) -> str:
        return f"{self.light_per_s:g} light/s, {self.setting.name}"


@contextmanager
def serving(setting: Setting, loops: int) -> Iterator[int]:
    """Runs gunicorn with one worker process; yields its port after the first answer."""
    words = ["-m", "gunicorn", "--worker-class", "gthread", "--workers", "1"]
    words += ["--threads", str(THREADS), "--keep-alive", "600", "--no-control-socket"]
    words += ["--graceful-timeout", "1", "--chdir", str(PROGRAMS)]
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        words += ["--bind", f"fd://{listener.fileno()}", "pages:app"]
        command = setting.command(*words, options=["--follow"])
        port = listener.getsockname()[1]
        name = f"gunicorn under {setting.name}"
        descriptors = [listener.fileno()]
        environment = {"PAGE_LOOPS": str(loops)}
        with started(
            command, name, pass_fds=descriptors, speaks=False, environment=environment
        ) as gunicorn:
            check_policy(gunicorn, port, setting)
            yield port


def check_policy(gunicorn: ChildProgram, port: int, setting: Setting) -> None:
    """Waits for the first answer: the worker, a forked child, says which policy it runs under."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_TIMEOUT_S)
    try:
        connection.request("GET", "/gil")
        found = json.loads(connection.getresponse().read())["policy"]
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        said = gunicorn.last_message()
        raise ProgramError(f"{gunicorn.name} does not answer ({error}); it said: {said}") from None
    finally:
        connection.close()
    if found != setting.policy:
        raise ProgramError(f"{gunicorn.name}: its worker runs under {found}")


def measure_cell(cell: Cell, loops: int, options: argparse.Namespace) -> dict[str, float]:
    with serving(cell.setting, loops) as port:
        return visit(port, cell.light_per_s, options.connections, HEAVY_VISITORS, options.seconds)


def print_table(figures: Figures[Cell], cells: Sequence[Cell]) -> None:
    lines = []
    for cell in cells:
        shown = (
            figures.median(cell, "p50_s") * 1e3,
            figures.median(cell, "p99_s") * 1e3,
            figures.highest(cell, "max_s") * 1e3,
            figures.median(cell, "heavy_per_s"),
            figures.ratio(cell, cell._replace(setting=STOCK), "heavy_per_s"),
        )
        answered = answered_text(figures.median(cell, "light_answered_per_s"), cell.light_per_s)
        lines.append((f"{cell.light_per_s:g}", cell.setting.name, answered, *map(number, shown)))
    print(table(HEADINGS, lines))
    print(
        "Latencies are light requests', from the intended start. p50, p99: medians over rounds;\n"
        "max: of all. heavy/stock: median of the ratios round by round, at the same light/s.\n"
    )


def targets_of(figures: Figures[Cell], cells: Sequence[Cell]) -> list[Statement]:
    targets = []
    for cell in cells:
        rate = cell.light_per_s
        if cell.setting.policy is None:
            continue
        stock = cell._replace(setting=STOCK)
        p99_ms = figures.median(cell, "p99_s") * 1e3
        if rate in P99_MS:
            targets.append(target(f"{cell}: p99", p99_ms, P99_MS[rate], at_most=True, unit="ms"))
        if rate in TIMES_BETTER_P99:
            times = figures.ratio(stock, cell, "p99_s")
            targets.append(target(f"{cell}: p99, times better", times, TIMES_BETTER_P99[rate]))
        if rate in HEAVY_SHARE_OF_STOCK:
            share = figures.ratio(cell, stock, "heavy_per_s")
            bound = HEAVY_SHARE_OF_STOCK[rate]
            targets.append(target(f"{cell}: heavy pages/s of stock's", share, bound))
    return targets


def measure(options: argparse.Namespace) -> sitting.Experiments:
    if importlib.util.find_spec("gunicorn") is None:
        raise ProgramError(
            f"{sys.executable} has no gunicorn: install bench/requirements.txt (make bench does)", 2
        )
    settings = stock_and(options.policy)
    cells = [Cell(rate, setting) for rate in options.light for setting in settings]
    loops = heavy_page_loops()
    print(
        f"gunicorn gthread 1 x {THREADS}; {HEAVY_VISITORS} visitors of the heavy page, "
        f"at most {options.connections} light requests at once"
    )
    figures: Figures[Cell] = Figures()
    measure_with = partial(measure_cell, loops=loops, options=options)
    for cell, found in sitting.rounds(NAME, options.rounds, cells, measure_with):
        figures.record(cell, **found)
    print_table(figures, cells)
    targets = targets_of(figures, cells)
    print_targets(targets)
    return figures.experiments(NAME, Cell.parameters, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=5, seconds=20.0, quick_seconds=4.0)
    add_options(parser, LIGHT_PER_S)
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
