"""Event loops with stalls of known causes: Headway's figures beside the program's own clocks.

The program is tests/programs/event_loop.py. This module does not know how its rows are printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from headway.programs.processes import ProgramError, prepare_child
from headway.report import event_loops
from headway.report.model import EventLoopRow, GilReport, LateLine

PROGRAM = Path(__file__).resolve().parents[1] / "tests" / "programs" / "event_loop.py"
LOOPS = ("asyncio", "uvloop", "trio")
CAUSES = ("sleep", "python", "c", "thread")
ALL = "all"
PARTS = (event_loops.COMPUTED, event_loops.WAITED, event_loops.BLOCKED)
TIMEOUT_S = 60.0


class Expected(NamedTuple):
    """The line of a cause. A loop that waits for the GIL may have called nothing yet."""

    part: str
    function: str
    callbacks: tuple[str | None, ...] = ("main",)
    thread: str | None = None

    def is_that_of(self, line: LateLine) -> bool:
        return (
            line.part == self.part
            and line.function == self.function
            and line.callback in self.callbacks
            and line.thread == self.thread
        )


EXPECTED = {
    "sleep": Expected(event_loops.BLOCKED, "sleeping"),
    "python": Expected(event_loops.COMPUTED, "compute"),
    "c": Expected(event_loops.COMPUTED, "sum_in_c"),
    "thread": Expected(event_loops.WAITED, "sum_in_c", (None, "main"), "hog"),
}


class Case(NamedTuple):
    loop: str
    cause: str

    @property
    def causes(self) -> tuple[str, ...]:
        return CAUSES if self.cause == ALL else (self.cause,)

    def parameters(self) -> dict[str, Any]:
        return self._asdict()

    def __str__(self) -> str:
        return f"{self.loop}, {self.cause}"


CASES = tuple(Case(loop, cause) for loop in LOOPS for cause in (*CAUSES, ALL))


class Comparison(NamedTuple):
    """Headway's figures of late iterations, and those of the program's clocks."""

    found: Mapping[str, float]
    own: Mapping[str, float]
    number: int
    own_number: int
    lines: list[LateLine]

    @property
    def late_s(self) -> float:
        return sum(self.found.values())

    @property
    def own_late_s(self) -> float:
        return sum(self.own.values())

    def share_off_points(self) -> float:
        """The largest difference of a part's share, in points."""
        return 100 * max(
            abs(self.found[part] / self.late_s - self.own[part] / self.own_late_s) for part in PARTS
        )

    def duration_off_percent(self) -> float:
        return 100 * (self.late_s / self.own_late_s - 1)

    def lines_share(self) -> float:
        """The part of the late time that is charged to lines."""
        return sum(line.late_s for line in self.lines) / self.late_s

    def wrong_line(self, case: Case) -> str:
        """What is wrong with the lines; "" if they are right: the first one of each part is that of
        a cause, and each cause has one."""
        expected = [EXPECTED[cause] for cause in case.causes]
        for part in {each.part for each in expected}:
            first = next((line for line in self.lines if line.part == part), None)
            if first is None:
                return f"{part}: no line"
            if not any(each.is_that_of(first) for each in expected):
                return f"{part}: {described(first)}"
        for cause, each in zip(case.causes, expected, strict=True):
            if not any(each.is_that_of(line) for line in self.lines):
                return f"{cause}: no line"
        if len(expected) == 1 and not expected[0].is_that_of(self.lines[0]):
            return described(self.lines[0])
        return ""


def described(line: LateLine) -> str:
    thread = f" of {line.thread}" if line.thread else ""
    return f"{event_loops.code(line)}{thread}, called by {line.callback or 'no callback'}"


def missing(loop: str) -> str:
    """The reason why a loop cannot be measured; "" if it can."""
    if find_spec(loop) is None:
        return f"{sys.executable} has no {loop}: install bench/requirements.txt (make bench does)"
    return ""


@contextmanager
def before_others() -> Iterator[bool]:
    """A program that is started here runs before all others, if it may, so that it does not wait
    for a core; False if it may not."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def compare(case: Case) -> Comparison:
    with tempfile.TemporaryDirectory(prefix="headway-loops-") as folder:
        file = Path(folder, "report.json")
        words = [sys.executable, "-m", "headway", "run", "--json", str(file), str(PROGRAM)]
        try:
            ended = subprocess.run(
                [*words, case.loop, *case.causes],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                preexec_fn=prepare_child,
            )
        except subprocess.TimeoutExpired:
            raise ProgramError(f"{case}: has not ended after {TIMEOUT_S:g} s") from None
        if ended.returncode != 0:
            said = ended.stderr.strip().splitlines() or ["nothing"]
            raise ProgramError(f"{case}: ended with {ended.returncode}; it said: {said[-1]}")
        own = json.loads(ended.stdout)["late"]
        rows = GilReport.decode(json.loads(file.read_text())).event_loops
    if not rows:
        raise ProgramError(f"{case}: the report has no event loop")
    return comparison(rows[0], own)


def comparison(row: EventLoopRow, own: Mapping[str, float]) -> Comparison:
    return Comparison(
        found=dict(event_loops.parts(row)),
        own={part: own[f"{part}_s"] for part in PARTS},
        number=row.late,
        own_number=int(own["count"]),
        lines=row.lines,
    )
