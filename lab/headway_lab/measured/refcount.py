"""`refcount`: the cost of an increment and a decrement of a reference count, by kind of count.

The counts are native (`lab/crates/refcounts`). Beside them are those of CPython itself, with a GIL
and without, measured by copies of lists.
"""

from __future__ import annotations

import subprocess
from functools import cache

from headway.errors import CommandError
from headway.output.claim import Statement
from headway.output.results import Parameters, Results
from headway.output.table import Chart, Table
from headway.programs.processes import Window
from headway_lab.experiment import Choice, Experiment, Measured, Row
from headway_lab.measured import refcount_results
from headway_lab.measured.refcount_results import KINDS, ONE, OWN, WITH_GIL, WITHOUT_GIL
from headway_lab.setting import Setting, program

THREADS = (1, 2, 4)
QUICK_THREADS = (1, 2)
# With --quick, several threads count on one object only, and only with kinds that are possible
# without a GIL.
QUICK_KINDS = ("atomic", "buffered", "biased")
SECONDS = 0.25
QUICK_SECONDS = 0.08


class Refcount(Experiment):
    name = "refcount"
    unit = "ns"
    summary = "an increment and a decrement of a reference count, by kind of count"
    shows = (
        "Threads take and drop references, which are counted in five ways: plainly, as the GIL "
        "allows; not at all, for immortal objects; atomically and through logs, as Gilectomy "
        "tried; and biased towards one thread, as free-threaded CPython does. What a "
        "single-threaded program pays for doing without a GIL went from a third to a few per "
        "cent, while an object that several threads count at once stays expensive."
    )
    higher_is_better = False
    heeds = frozenset({"threads"})

    def rows(self, choice: Choice) -> list[Row]:
        threads = choice.threads or (QUICK_THREADS if choice.quick else THREADS)
        if 0 in threads:
            raise CommandError("--threads 0: refcount needs 1 thread or more", exit_code=2)
        interpreter = choice.interpreter
        no_module = (
            ""
            if _counts(interpreter.path)
            else f"{interpreter.path} has no headway-lab of its own, whose module counts"
        )
        always_biased = (
            f"CPython {interpreter.version} is a free-threaded build, whose counts are biased also "
            "with its GIL"
            if interpreter.free_threading
            else ""
        )
        rows = [
            Row(_parameters(kind, count, objects), choice.setting(), no_module)
            for kind in KINDS
            for count in threads
            for objects in _objects(choice, kind, count)
        ]
        if 1 in threads:
            rows.append(Row(_parameters(WITH_GIL, 1, OWN), choice.setting(), always_biased))
        without_gil = choice.free_threaded_setting() if choice.free_threaded else choice.setting()
        rows += [
            Row(_parameters(WITHOUT_GIL, count, objects), without_gil, choice.no_free_threading)
            for count in threads
            for objects in _objects(choice, WITHOUT_GIL, count)
        ]
        return rows

    def calibrate(self, choice: Choice) -> Parameters:
        beside = choice.free_threaded
        return {
            "pairs_per_bytecode": refcount_results.PAIRS_PER_BYTECODE,
            "interpreter": choice.interpreter.name,
            "free_threaded": beside.name if beside else None,
        }

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        seconds = choice.seconds or (QUICK_SECONDS if choice.quick else SECONDS)
        return count_pairs(row.setting, row.parameters, seconds)

    def published(self, parameters: Parameters) -> float | None:
        """The published values are shares of whole programs; the tables show them beside the
        estimates."""
        return None

    def tables(self, results: Results) -> list[Table]:
        return refcount_results.tables(results)

    def charts(self, results: Results) -> list[Chart]:
        return refcount_results.charts(results)

    def statements(self, results: Results) -> list[Statement]:
        return refcount_results.statements(results)


@cache
def _counts(python: str) -> bool:
    """Whether an interpreter has the module that counts."""
    asked = [python, "-c", "import headway_lab._native"]
    try:
        return subprocess.run(asked, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def count_pairs(setting: Setting, parameters: Parameters, seconds: float) -> Measured:
    """The value is the CPU time of all counting threads for a pair. `elapsed_ns` is the time of one
    thread for a pair, whichever thread does the rest of the work."""
    kind, objects = parameters["kind"], "one" if parameters["objects"] == ONE else "own"
    words = [str(parameters["threads"]), objects, str(seconds)]
    script = ["native_refcounts", kind] if kind in KINDS else ["list_copies"]
    with program(setting, *script, *words) as counting:
        counting.answer()
        # The program chooses its time itself from here on.
        counting.measure(Window.after(0.0, 0))
        found = counting.answer()
    value = found.pop("cpu_ns")
    return Measured(value, {**found, "bytecode_percent": value / found["bytecode_ns"] * 100})


def _parameters(kind: str, threads: int, objects: str) -> Parameters:
    return {"kind": kind, "threads": threads, "objects": objects}


def _objects(choice: Choice, kind: str, threads: int) -> tuple[str, ...]:
    """With one thread, `own` and `one` are the same."""
    if threads == 1:
        return (OWN,)
    if choice.quick:
        return (ONE,) if kind in (*QUICK_KINDS, WITHOUT_GIL) else ()
    return (ONE, OWN)
