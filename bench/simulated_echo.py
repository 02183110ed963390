"""The echo table, simulated beside measured: by how much are the simulation's cells off?

    bench/simulated_echo.py [--values N] [--from FILE] [--json FILE] [--calibration FILE]
                            [--steps N]

measures seed 002's table (seven switch intervals, 0, 1, 2 and 4 CPU-bound threads) with the
interpreter that runs this, or reads such rows from a file of `headway bench echo`, and simulates
it: with the constants as they are, with those refined on all cells, and, held out, each half of the
cells with constants that were refined on the other half. Cells with fewer than 100 measured
requests are named and left out. Measured in full it takes ten minutes, on a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

from refinement import Comparison, Observed, constants, refine

from headway.output.metadata import STOCK, Circumstances
from headway.output.results import Result, Results
from headway.programs import interpreters
from headway.programs.progress import clear_progress, progress
from headway_lab import results_file
from headway_lab.commands.simulate import INTERPRETER
from headway_lab.experiment import Choice
from headway_lab.measured.echo import PUBLISHED_PER_S, SECONDS, Echo
from headway_lab.measured.echo_value import FREE, THREADS, Beside
from headway_lab.rounds import Length, Rounds
from headway_lab.simulated import calibration
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models.echo import SimulatedEcho
from headway_lab.simulated.models.experiment import Conditions

INTERVALS_S = tuple(PUBLISHED_PER_S)
THREAD_COUNTS = (0, 1, 2, 4)
LEAST_REQUESTS = 100
VALUES = 6
SEEDS = 5


def choice_of(interpreter: interpreters.Interpreter) -> Choice:
    return Choice(
        interpreter=interpreter,
        policies=(STOCK,),
        switch_intervals_s=INTERVALS_S,
        threads=THREAD_COUNTS,
        modes=(THREADS,),
    )


def is_cell(result: Result) -> bool:
    named = result.parameters
    where = (named["policy"], named["mode"], named["cores"])
    return where == (STOCK, THREADS, FREE) and named["cpu_threads"] in THREAD_COUNTS


class Table(Echo):
    """No rows but the table's."""

    def rows(self, choice: Choice) -> list:  # type: ignore[type-arg]
        return [row for row in super().rows(choice) if is_cell(Result(row.parameters))]


def measured(values: int, path: str | None) -> Results:
    """And kept as `headway bench --json` does, if there is a path."""
    circumstances = Circumstances()
    interpreter = interpreters.chosen(None)
    table = Table()
    rounds = Rounds(table, choice_of(interpreter), Length(values, None), progress)
    rounds.run()
    clear_progress()
    if path is not None:
        metadata = circumstances.to_dict(interpreter, beside=None, policies=[STOCK], quick=False)
        results_file.write(path, metadata, [(table, rounds.results)])
    return rounds.results


def requests(result: Result) -> float:
    """How many were measured, in all values together."""
    named = result.parameters
    setting = choice_of(INTERPRETER).setting(STOCK, named["switch_interval"])
    beside = Beside(setting, setting, named["cpu_threads"], THREADS, FREE)
    return sum(result.values) * beside.seconds(SECONDS)


def square(cell: Observed) -> bool:
    """Whether it is one of a chessboard's white squares: so each half has all rows and columns."""
    named = cell.parameters
    row = INTERVALS_S.index(named["switch_interval"])
    return (row + THREAD_COUNTS.index(named["cpu_threads"])) % 2 == 0


def show(title: str, cells: list[Observed], found: list[float]) -> None:
    print(f"\n{title}: simulated requests/s (measured)")
    print("  interval  " + "".join(f"{count:>22} CPU" for count in THREAD_COUNTS))
    by_place = {
        (cell.parameters["switch_interval"], cell.parameters["cpu_threads"]): (value, cell.value)
        for cell, value in zip(cells, found, strict=True)
    }
    for interval_s in INTERVALS_S:
        row = [by_place.get((interval_s, count)) for count in THREAD_COUNTS]
        texts = [f"{each[0]:,.1f} ({each[1]:,.1f})" if each else "-" for each in row]
        print(f"  {interval_s:<8g}  " + "".join(f"{text:>26}" for text in texts))
    ratios = [value / cell.value for cell, value in zip(cells, found, strict=True)]
    farthest = max(max(each, 1 / max(each, 1e-9)) for each in ratios)
    print(
        f"  median error {median(abs(each - 1) for each in ratios):.1%}, {len(ratios)} cells; "
        f"farthest {farthest:.2f}x; {sum(not 0.5 <= each <= 2 for each in ratios)} beyond 2x"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=VALUES, help="of each cell")
    parser.add_argument("--from", dest="source", type=Path, help="measure nothing: read these")
    parser.add_argument("--json", help="where to keep what was measured")
    parser.add_argument("--calibration", help="of `headway simulate --calibrate`, to start from")
    parser.add_argument("--steps", type=int, default=400, help="of a refinement")
    options = parser.parse_args()
    if options.source:
        kept = results_file.read(str(options.source)).experiments
        (results,) = (each.results for each in kept if each.results.name == Echo.name)
    else:
        results = measured(options.values, options.json)
    rows = [each for each in results if is_cell(each) and each.values]
    few = [each for each in rows if requests(each) < LEAST_REQUESTS]
    cells = [Observed(each.parameters, each.median()) for each in rows if each not in few]
    for each in few:
        named = each.parameters
        print(
            f"left out: {named['switch_interval']:g} s, {named['cpu_threads']} CPU-bound threads: "
            f"{requests(each):.0f} requests measured"
        )
    choice = choice_of(INTERPRETER)
    simulated = SimulatedEcho()
    start = Conditions(Machine(), Costs())
    if options.calibration:
        calibrated = calibration.read(options.calibration)
        start = Conditions(calibrated.machine, calibrated.costs)

    def compare(observed: list[Observed], values: int = 1) -> Comparison:
        return Comparison(simulated, choice, observed, values)

    everything = compare(cells, SEEDS)
    show("calibrated" if options.calibration else "as shipped", cells, everything.simulate(start))
    refined = refine(compare(cells), start, progress, options.steps)
    clear_progress()
    show("refined on all cells", cells, everything.simulate(replace(refined, seed=100)))
    print("  " + ", ".join(f"{name} {value}" for name, value in constants(refined).items()))
    halves = [each for each in cells if square(each)], [each for each in cells if not square(each)]
    predicted: dict[int, float] = {}
    for known, unknown in (halves, halves[::-1]):
        held_out = refine(compare(list(known)), start, progress, options.steps)
        clear_progress()
        found = compare(list(unknown), SEEDS).simulate(replace(held_out, seed=100))
        predicted |= {id(cell): value for cell, value in zip(unknown, found, strict=True)}
    show("held out", cells, [predicted[id(cell)] for cell in cells])
    return 0


if __name__ == "__main__":
    sys.exit(main())
