"""Measures the cost of a contention profile: while it is off, at the 200 contended drops a second
of threads that compute, and at 20,000.

off     the instructions of a drop and a take, which callgrind counts: without the meter, under the
        meter and with a profile. With --before, also those of another environment's Headway, such
        as one of the commit before the profile.
few     two threads compute, and drop the GIL 200 times a second.
many    an echo server under `priority` beside a thread that computes, and a client that sends so
        many requests a second that there are about 20,000 contended drops.
most    the same with a client that sends as many as it can.

`few`, `many` and `most` measure in one process, in pairs of windows with and without a profile, the
first of each pair in turn. A ratio is the median of the pairs' ratios with its 95 % confidence
interval.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import callgrind
import sitting
from callgrind import Instructions
from figures import Figures, experiment, number, print_targets, table, target
from places import PROGRAMS

from headway.output import statistics
from headway.output.claim import Statement
from headway.programs.processes import ChildProgram, ProgramError
from headway_lab.setting import started

NAME = "profile_cost"
PARTS = ("off", "few", "many", "most")
SETTINGS = ("off", "on")
WARM_UP_S = 1.0
# About 2 contended drops for each request.
REQUESTS_PER_S = 10_000.0
# The targets of the profile.
MOST_INSTRUCTIONS_OFF = 5.0
MOST_COST = 0.03

DROPS = """
import ctypes, sys
from headway.meter import engine
call_without_gil = ctypes.CDLL(None).abs
{setup}
def drop_and_take(count):
    for _ in range(count):
        call_without_gil(1)
drop_and_take(int(sys.argv[1]))
"""
METER, PROFILE = "engine.install(None)", "engine.begin_profile()"
HEADINGS = ("part", "figure", "off", "on", "on/off", "95 % interval")


class Cell(NamedTuple):
    part: str
    setting: str

    def __str__(self) -> str:
        return f"{self.part}, profile {self.setting}"

    def parameters(self) -> dict[str, Any]:
        return {"part": self.part, "profile": self.setting == "on"}


class Figure(NamedTuple):
    """A figure whose ratio is the cost. `title` is how a table names it, in units of `unit`."""

    name: str
    title: str
    unit: float = 1.0


CPU = Figure("cpu_per_work_s", "CPU us for a unit of work", 1e-6)
WORK = Figure("work_per_s", "units of work/s beside the server")
RATE = Figure("requests_per_s", "requests/s")
COSTS = {"few": (CPU,), "many": (WORK, RATE), "most": (RATE, WORK)}


@contextmanager
def load(part: str, requests_per_s: float) -> Iterator[ChildProgram]:
    """The measured program, with its client if it has one."""
    mode = "compute" if part == "few" else "echo"
    with ExitStack() as running:
        command = [sys.executable, str(PROGRAMS / "profiled_load.py"), mode]
        measured = running.enter_context(started(command, f"profiled_load.py {mode}"))
        port = measured.answer()["port"]
        if port:
            rate = requests_per_s if part == "many" else 0.0
            command = [sys.executable, str(PROGRAMS / "paced_client.py"), str(port), str(rate)]
            running.enter_context(started(command, "paced_client.py", speaks=False))
        yield measured


def measure_pairs(part: str, options: argparse.Namespace, figures: Figures[Cell]) -> None:
    with load(part, options.requests) as measured:
        cells = [Cell(part, setting) for setting in SETTINGS]
        measured.ask(f"off {WARM_UP_S}")
        measured.answer()

        def window(cell: Cell) -> dict[str, float]:
            measured.ask(f"{cell.setting} {options.seconds}")
            return measured.answer()

        for cell, found in sitting.rounds(NAME, options.rounds, cells, window):
            figures.record(cell, **found)


def ratio(figures: Figures[Cell], part: str, figure: Figure) -> statistics.Interval:
    off, on = (figures.values(Cell(part, setting), figure.name) for setting in SETTINGS)
    return statistics.paired_ratio(on, off)


def print_table(figures: Figures[Cell], parts: Sequence[str]) -> None:
    lines = []
    for part in parts:
        off, on = (Cell(part, setting) for setting in SETTINGS)
        for figure in COSTS[part]:
            found = ratio(figures, part, figure)
            medians = (figures.median(cell, figure.name) / figure.unit for cell in (off, on))
            interval = f"{found.low:.4f} to {found.high:.4f}"
            lines.append(
                (part, figure.title, *map(number, medians), f"{found.median:.4f}", interval)
            )
        for title, name in (
            ("contended drops/s", "contended_drops_per_s"),
            ("CPU of the reader of stacks, of one core", "reader_share"),
        ):
            medians = (figures.median(cell, name) for cell in (off, on))
            lines.append((part, title, *map(number, medians), "", ""))
    print(table(HEADINGS, lines))


def targets_of(figures: Figures[Cell], parts: Sequence[str]) -> list[Statement]:
    targets = []
    if "few" in parts:
        found = ratio(figures, "few", CPU)
        text = "few: the interval of the CPU time's ratio begins"
        targets.append(target(text, found.low, 1.0, at_most=True))
    if "many" in parts:
        cost = 1 - ratio(figures, "many", WORK).median
        targets.append(target("many: CPU for a request", cost, MOST_COST, at_most=True))
    return targets


class Counted(NamedTuple):
    """The instructions of a drop and a take; NaN if they were not counted. `meter` and `profile`
    are those of Headway's module alone."""

    python: Path
    plain: float
    with_meter: float
    meter: float
    profile: float


def count(python: Path) -> Counted:
    setups = ("", METER, f"{METER}; {PROFILE}")
    none = Instructions(math.nan, math.nan)
    plain, meter, profile = (
        callgrind.per_operation(python, DROPS.format(setup=setup)) or none for setup in setups
    )
    return Counted(python, plain.all, meter.all, meter.headway, profile.headway)


def measure_off(before: Path | None) -> tuple[sitting.Experiments, list[Statement]]:
    counts = [count(python) for python in (Path(sys.executable), before) if python]
    lines = [(str(each.python), *(f"{value:.1f}" for value in each[1:])) for each in counts]
    headings = ("instructions", "no meter", "meter", "of it Headway's", "with a profile")
    print(table(headings, lines, names=1))
    rows = [
        ({"python": str(each.python), "state": state}, [value])
        for each in counts
        for state, value in zip(each._fields[1:], each[1:], strict=True)
    ]
    targets = []
    if before is not None:
        more = counts[0].meter - counts[1].meter
        text = "off: more instructions than before, for a drop and a take"
        # Both have the limit of a drop.
        targets.append(target(text, more, 2 * MOST_INSTRUCTIONS_OFF, at_most=True))
    return [experiment(f"{NAME} instructions", "", rows, targets)], targets


def measure(options: argparse.Namespace) -> sitting.Experiments:
    parts = [part for part in PARTS if part in (options.part or PARTS)]
    experiments: sitting.Experiments = []
    targets: list[Statement] = []
    if "off" in parts:
        experiments, targets = measure_off(options.before)
    measured = [part for part in parts if part != "off"]
    figures: Figures[Cell] = Figures()
    for part in measured:
        measure_pairs(part, options, figures)
    if measured:
        print_table(figures, measured)
    paired = targets_of(figures, measured)
    print_targets([*targets, *paired])
    return [*experiments, *figures.experiments(NAME, Cell.parameters, paired)]


def interpreter(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ProgramError(f"--before: found {text!r}; it is the file of an interpreter", 2)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=40, seconds=1.0, quick_seconds=0.5, policies=())
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="may be given again (default: all)"
    )
    parser.add_argument(
        "--requests",
        type=sitting.positive_seconds,
        default=REQUESTS_PER_S,
        metavar="N",
        help=f"requests a second of `many` (default: {REQUESTS_PER_S:g})",
    )
    parser.add_argument(
        "--before",
        type=interpreter,
        metavar="PYTHON",
        help="the interpreter of an environment with another Headway, to compare with",
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
