"""py-spy's samples of the thread that holds the GIL beside Headway's charges, function by function.

Each round starts a program of programs/held.py. py-spy (`record --gil`) watches it for --seconds,
then Headway profiles it for as long. A function has the share of py-spy's samples, and of the time
that threads waited, in which it was in the stack of the holder.

  convoy  a thread that computes beside one that needs the GIL for a moment, again and again
  send    4 ms in parse(), then send() in reply(), at a switch interval of 20 ms
  crowd   three functions compute equally long while none, one and eight threads wait
  shop    examples/shop under load: four visitors of light pages, two of the heavy one
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import sitting
from figures import Figures, print_targets, table, target
from peers import ROOT
from places import PROGRAMS

from headway.output.claim import Statement
from headway.programs.processes import ChildProgram, ProgramError
from headway_lab.setting import started

NAME = "py_spy"
RATE = 200
WARM_UP_S = 1.0
# Beyond the two windows of a round.
SPARE_S = 15.0
LIGHT_VISITORS, HEAVY_VISITORS = 4, 2
HEADINGS = ("program", "function", "known", "py-spy", "Headway")
LEGEND = """\
Percent of py-spy's samples with --gil, and of the time that threads waited: medians over rounds.
known: the share of the waiting that the function causes."""


class Function(NamedTuple):
    """A function of a program. `known` is the share of the waiting that it causes, and `off` how
    far Headway may be from it; None without a known answer."""

    name: str
    file: str = "held.py"
    known: float | None = None
    off: float = 0.05


class Cell(NamedTuple):
    program: str
    function: str = ""

    def parameters(self) -> dict[str, Any]:
        return self._asdict()

    def __str__(self) -> str:
        return self.program


PARTS: dict[str, tuple[Function, ...]] = {
    "convoy": (Function("compute", known=1.0), Function("answer", known=0.0)),
    # A call right before a drop may get a part of the charge of what came before it.
    "send": (Function("parse", known=1.0, off=0.2), Function("reply", known=0.0, off=0.2)),
    "crowd": (
        Function("alone", known=0.0, off=0.02),
        # Each of the eight waits about as long as the one.
        Function("beside_one", known=1 / 9),
        Function("beside_eight", known=8 / 9),
    ),
    "shop": (
        Function("recommend", "shop.py"),
        Function("similarity", "recommendations.py"),
        Function("home", "shop.py"),
        Function("product", "shop.py"),
        Function("cart", "shop.py"),
    ),
}


def find_py_spy() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise ProgramError(
            f"{sys.executable} has no py-spy: install bench/requirements.txt (make bench does)", 2
        )
    return found


@contextmanager
def held(program: str, seconds: float) -> Iterator[ChildProgram]:
    """The program, with its load if it has one."""
    with ExitStack() as running:
        command = [sys.executable, str(PROGRAMS / "held.py"), program]
        holding = running.enter_context(started(command, f"held.py {program}"))
        port = holding.answer()["port"]
        if port:
            command = [sys.executable, str(ROOT / "examples" / "shop" / "load.py")]
            command += ["127.0.0.1", str(port), "--seconds", str(2 * seconds + SPARE_S)]
            command += ["--light", str(LIGHT_VISITORS), "--heavy", str(HEAVY_VISITORS)]
            running.enter_context(started(command, "load.py", speaks=False))
        yield holding


def spy(py_spy: str, pid: int, seconds: float, file: Path) -> None:
    command = [py_spy, "record", "--gil", "--rate", str(RATE), "--format", "raw"]
    command += ["--duration", str(max(1, round(seconds))), "--output", str(file)]
    ran = subprocess.run([*command, "--pid", str(pid)], capture_output=True, text=True)
    if ran.returncode != 0 or not file.exists():
        said = (ran.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise ProgramError(f"py-spy cannot read the stacks of another process: {said}")


def shares(file: Path, functions: Sequence[Function]) -> list[float]:
    """The shares of the stacks in which each function is. Both tools write lines of collapsed
    stacks; Headway's functions have qualified names, and its files full paths."""
    total, sums = 0.0, [0.0] * len(functions)
    for line in file.read_text().splitlines():
        stack, _, value = line.rpartition(" ")
        total += float(value)
        found = {
            (name.rpartition(".")[2], os.path.basename(path))
            for name, path in re.findall(r"(?:^|;)([^;]*?) \(([^;()]*?)(?::\d+)?\)", stack)
        }
        for index, function in enumerate(functions):
            if (function.name, function.file) in found:
                sums[index] += float(value)
    if not total:
        raise ProgramError(f"{file.name}: no stack was recorded")
    return [each / total for each in sums]


def measure_program(cell: Cell, py_spy: str, seconds: float) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder, held(cell.program, seconds) as holding:
        spied, charged = Path(folder, "py-spy.txt"), Path(folder, "headway.txt")
        holding.ask(f"{WARM_UP_S} {charged}")
        holding.answer()
        spy(py_spy, holding.process.pid, seconds, spied)
        holding.ask(f"{seconds} {charged}")
        holding.answer()
        functions = PARTS[cell.program]
        return {"py_spy": shares(spied, functions), "headway": shares(charged, functions)}


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def measure(options: argparse.Namespace) -> sitting.Experiments:
    py_spy = find_py_spy()
    version = subprocess.run([py_spy, "--version"], capture_output=True, text=True).stdout
    print(version.strip())
    cells = [Cell(program) for program in PARTS if program in (options.program or PARTS)]
    figures: Figures[Cell] = Figures()
    measure_cell = partial(measure_program, py_spy=py_spy, seconds=options.seconds)
    for cell, found in sitting.rounds(NAME, options.rounds, cells, measure_cell):
        for index, function in enumerate(PARTS[cell.program]):
            values = {f"{tool}_share": each[index] for tool, each in found.items()}
            figures.record(Cell(cell.program, function.name), **values)
    lines = []
    targets: list[Statement] = []
    for cell in cells:
        for function in PARTS[cell.program]:
            each = Cell(cell.program, function.name)
            spied, charged = (
                figures.median(each, figure) for figure in ("py_spy_share", "headway_share")
            )
            shown = (percent(function.known), percent(spied), percent(charged))
            lines.append((cell.program, function.name, *shown))
            if function.known is not None:
                text = f"{cell.program}: {function.name}: Headway's share from the known one"
                off = abs(charged - function.known)
                targets.append(target(text, off, function.off, at_most=True))
    print(table(HEADINGS, lines))
    print(LEGEND)
    print()
    print_targets(targets)
    return figures.experiments(NAME, Cell.parameters, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=3, seconds=5.0, quick_seconds=2.0, policies=())
    parser.add_argument(
        "--program", action="append", choices=tuple(PARTS), help="may be given again (default: all)"
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
