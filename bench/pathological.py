"""The cases that every simple scheme of scheduling the GIL has trouble with, those lost included.

many_io, saturated: 64 I/O-bound threads, which want about all of the GIL, or several times that,
and a CPU-bound one; herd: 32 of them alone. masquerade: a hog that drops the GIL for microseconds
every 0.1 ms, beside an honest one. ping_pong: two threads and two queues beside a hog.
turns_cpu_bound: naps and bursts of work in one thread, beside a napping one and a hog. spinners:
time.sleep(0) beside a hog. more_than_cores: CPU-bound threads only. tiny_calls, short_windows: C
code that drops the GIL for microseconds, in 8 threads, or for some 20, in 4. long_call: a hog in C
code that keeps the GIL. pinned, quota: an echo server and a hog on one core, or throttled after 25
ms of each 100.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import sitting
from figures import Figures, number, ratio, table
from places import PROGRAMS

from headway.output.statistics import percentile
from headway.programs.processes import NS, ProgramError, Window
from headway_lab.setting import PROGRAMS as LAB_PROGRAMS
from headway_lab.setting import STOCK, Setting, program, started, stock_and

NAME = "pathological"
THREAD_CASES = (
    *("many_io", "saturated", "herd"),
    *("masquerade_hashlib", "masquerade_zlib", "masquerade_write", "masquerade_sleep0"),
    *("ping_pong", "turns_cpu_bound", "spinners", "more_than_cores"),
    *("tiny_calls", "short_windows", "long_call"),
)
ECHO_CASES = ("pinned", "quota")
CASES = (*THREAD_CASES, *ECHO_CASES)
WARM_UP_S = 0.3
ALONE_SHARE = 0.3  # of a cell's seconds
# A ratio to stock below this counts as lost; p99: above its inverse.
LOST = 0.9

HEADINGS = ("case", "row", "I/O /s", "/stock", "p99 ms", "CPU work", "/stock", "fewest/most")
LEGEND = """\
I/O: turns of the threads that are to be served soon, or pretend to be; p99: of their waits. CPU
work: what the CPU-bound threads get done, of one alone. fewest/most: among equals. Medians over
rounds; /stock: medians of the ratios round by round.
"""

GROUPS = Path("/sys/fs/cgroup")
QUOTA_US, PERIOD_US = 25_000, 100_000


class Cell(NamedTuple):
    case: str
    setting: Setting

    def parameters(self) -> dict[str, Any]:
        return {
            "case": self.case,
            **self.setting.parameters(),
        }

    def __str__(self) -> str:
        return f"{self.case}, {self.setting.name}"


def measure_cell(cell: Cell, seconds: float) -> dict[str, float]:
    return (measure_echo if cell.case in ECHO_CASES else measure_threads)(cell, seconds)


def measure_threads(cell: Cell, seconds: float) -> dict[str, float]:
    alone_per_s = turns(STOCK, "alone", seconds * ALONE_SHARE)["turns_per_s"]["hog"]
    found = turns(cell.setting, cell.case, seconds)
    rates: dict[str, float] = found["turns_per_s"]
    io = {name: rate for name, rate in rates.items() if name.startswith("io")}
    hogs = {name: rate for name, rate in rates.items() if name.startswith("hog")}
    figures: dict[str, float] = {}
    if io:
        figures["io_turns_per_s"] = sum(io.values())
    if found["waits_ns"]:
        figures["p99_s"] = percentile([wait_ns / NS for wait_ns in found["waits_ns"]], 0.99)
    if hogs and cell.case != "long_call":
        figures["work_share"] = ratio(sum(hogs.values()), alone_per_s)
    for equals in (io, hogs):
        # A turncoat is nobody's equal.
        if len(equals) > 1 and cell.case != "turns_cpu_bound":
            figures["fewest_of_most"] = ratio(min(equals.values()), max(equals.values()))
    return figures


def turns(setting: Setting, case: str, seconds: float) -> dict[str, Any]:
    with program(setting, "pathological_threads", case, folder=PROGRAMS) as running:
        running.answer()
        running.measure(Window.after(WARM_UP_S, seconds))
        return running.answer()


def measure_echo(cell: Cell, seconds: float) -> dict[str, float]:
    """The echo server with one CPU-bound thread; its client is under the same restriction."""
    with ExitStack() as running:
        if cell.case == "pinned":
            restriction = ["taskset", "--cpu-list", "0"]
        else:
            group = running.enter_context(quota())
            restriction = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]
        alone = running.enter_context(
            started([*restriction, *program_command(STOCK, "computation", "1")], "computation.py")
        )
        alone.answer()
        alone.measure(Window.after(WARM_UP_S, seconds * ALONE_SHARE))
        alone_per_s = alone.answer()["work_per_s"]
        serve = program_command(
            cell.setting, "echo_server", "1", str(cell.setting.switch_interval_s)
        )
        server = running.enter_context(
            started([*restriction, *serve], f"echo_server.py under {cell.setting.name}")
        )
        port = str(server.answer()["port"])
        ask = program_command(STOCK, "echo_client", port)
        client = running.enter_context(started([*restriction, *ask], "echo_client.py"))
        client.answer()
        window = Window.after(WARM_UP_S, seconds)
        server.measure(window)
        client.measure(window)
        latencies_s = [latency_ns / NS for latency_ns in client.answer()["latencies_ns"]]
        return {
            "io_turns_per_s": (len(latencies_s) - 1) / seconds,
            "p99_s": percentile(latencies_s, 0.99),
            "work_share": ratio(server.answer()["work_per_s"], alone_per_s),
        }


def program_command(setting: Setting, script: str, *arguments: str) -> list[str]:
    return setting.command(str(LAB_PROGRAMS / f"{script}.py"), *arguments)


@contextmanager
def quota() -> Iterator[Path]:
    """A cgroup, of either version, with a CPU quota. Raises OSError where none can be made."""
    controlled = GROUPS / "cgroup.subtree_control"
    unified = controlled.exists() and "cpu" in controlled.read_text().split()
    group = (GROUPS if unified else GROUPS / "cpu") / "headway-bench-quota"
    group.mkdir()
    try:
        if unified:
            (group / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        yield group
    finally:
        group.rmdir()


def why_no_quota() -> str | None:
    try:
        with quota():
            return None
    except OSError as problem:
        return str(problem)


def print_table(figures: Figures[Cell], cells: Sequence[Cell]) -> None:
    lines = []
    for cell in cells:
        stock = cell._replace(setting=STOCK)
        shown = (
            figures.median(cell, "io_turns_per_s"),
            figures.ratio(cell, stock, "io_turns_per_s"),
            figures.median(cell, "p99_s") * 1e3,
            figures.median(cell, "work_share"),
            figures.ratio(cell, stock, "work_share"),
            figures.median(cell, "fewest_of_most"),
        )
        lines.append((cell.case, cell.setting.name, *map(number, shown)))
    print(table(HEADINGS, lines))
    print(LEGEND)


def lost(figures: Figures[Cell], cells: Sequence[Cell]) -> list[str]:
    """Lines that name each figure in which a policy is behind stock."""
    lines = []
    for cell in cells:
        if cell.setting.policy in (None, "interval"):
            continue
        stock = cell._replace(setting=STOCK)
        for figure, text in (("io_turns_per_s", "I/O"), ("work_share", "CPU work")):
            of_stock = figures.ratio(cell, stock, figure)
            if of_stock < LOST:
                lines.append(f"behind stock: {cell}: {text} {number(of_stock)} of stock's")
        p99_of_stock = figures.ratio(cell, stock, "p99_s")
        if p99_of_stock > 1 / LOST:
            lines.append(f"behind stock: {cell}: p99 {number(p99_of_stock)} of stock's")
    return lines


def measure(options: argparse.Namespace) -> sitting.Experiments:
    policies = list(dict.fromkeys(("interval", *options.policy)))
    settings = stock_and(policies)
    cases = options.case
    refusal = why_no_quota() if "quota" in cases else None
    if refusal is not None:
        print(f"quota: left out, since no cgroup with a CPU quota can be made here: {refusal}")
        cases = [case for case in cases if case != "quota"]
    if not cases:
        raise ProgramError("nothing is left to measure")
    cells = [Cell(case, setting) for case in cases for setting in settings]
    figures: Figures[Cell] = Figures()
    measure_for = partial(measure_cell, seconds=options.seconds)
    for cell, found in sitting.rounds(NAME, options.rounds, cells, measure_for):
        figures.record(cell, **found)
    print_table(figures, cells)
    print(*lost(figures, cells) or ["behind stock: nothing"], sep="\n")
    return figures.experiments(NAME, Cell.parameters, [])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=3, seconds=1.5, quick_seconds=0.3)
    parser.add_argument(
        "--case", nargs="+", choices=CASES, default=CASES, help="which cases (default: all)"
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
