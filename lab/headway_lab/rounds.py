"""The rounds of an experiment: every row is measured once a round, so that drift of the machine
affects all rows alike.

Every other round goes backwards. Each value comes from new processes. This module does not know
what is measured, or how results are shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headway.output.results import Result, Results
from headway.programs import signals
from headway.programs.processes import ProgramError
from headway_lab.experiment import Choice, Experiment, Row

LEAST_VALUES = 3
MOST_VALUES = 25
# A row that failed this often is not tried again.
MAX_FAILURES = 2

Progress = Callable[[str], None]
Found = TypeVar("Found")


class Length:
    """The number of rounds: a given number, or as many as fit into a given time."""

    def __init__(self, values: int | None, budget_s: float | None) -> None:
        self.values = values
        self.budget_s = budget_s

    def is_over(self, done: int, elapsed_s: float) -> bool:
        if self.values is not None:
            return done >= self.values
        if done < LEAST_VALUES:
            return False
        assert self.budget_s is not None
        return done >= MOST_VALUES or elapsed_s * (done + 1) / done > self.budget_s

    def left_s(self, rounds_done: float, elapsed_s: float) -> float | None:
        """The remaining time; None while it is unknown."""
        if not rounds_done:
            return None
        if self.values is not None:
            return elapsed_s / rounds_done * (self.values - rounds_done)
        assert self.budget_s is not None
        round_s = elapsed_s / rounds_done
        least, most = (round_s * (count - rounds_done) for count in (LEAST_VALUES, MOST_VALUES))
        return max(least, min(most, self.budget_s - elapsed_s), 0.0)


class Rounds:
    """The rounds of one experiment. `results` can be shown at any time, however the rounds end."""

    def __init__(
        self, experiment: Experiment, choice: Choice, length: Length, progress: Progress
    ) -> None:
        self._experiment = experiment
        self._choice = choice
        self._length = length
        self._progress = progress
        self._rows = experiment.rows(choice)
        self.results = Results(
            experiment.name,
            experiment.unit,
            [
                Result(row.parameters, experiment.published(row.parameters), row.left_out)
                for row in self._rows
            ],
            {},
        )

    def run(self) -> None:
        """Runs all rounds. KeyboardInterrupt is raised as it comes, and the results so far are
        kept. If the calibration fails, the rows have that reason."""
        pairs = list(zip(self._rows, self.results.rows, strict=True))
        pairs = [(row, result) for row, result in pairs if not row.left_out]
        if not pairs:
            return
        self._progress(f"{self._experiment.name}: calibrating")
        try:
            self.results.calibration = measure_undisturbed(
                lambda: self._experiment.calibrate(self._choice)
            )
        except ProgramError as error:
            for _, result in pairs:
                result.failures.append(f"not calibrated: {error}")
            return
        began = time.monotonic()
        done = 0
        while not self._length.is_over(done, time.monotonic() - began):
            for index, (row, result) in enumerate(pairs if done % 2 == 0 else reversed(pairs)):
                rounds_done = done + index / len(pairs)
                left_s = self._length.left_s(rounds_done, time.monotonic() - began)
                left = "" if left_s is None else f", {left_s:.0f} s left"
                self._progress(f"{self._experiment.name}: round {done + 1}{left}: {row}")
                if len(result.failures) < MAX_FAILURES:
                    self._measure(row, result)
            done += 1

    def _measure(self, row: Row, result: Result) -> None:
        try:
            found = measure_undisturbed(
                lambda: self._experiment.measure(row, self._choice, self.results.calibration)
            )
        except ProgramError as error:
            result.failures.append(str(error))
            return
        result.add(*found)


def measure_undisturbed(measure: Callable[[], Found]) -> Found:
    """Measures again if this process was stopped meanwhile (Ctrl-Z, SIGSTOP), because the time of
    the stop would count as a latency."""
    while True:
        signals.continued.clear()
        try:
            found = measure()
        except ProgramError:
            if not signals.continued.is_set():
                raise
        else:
            if not signals.continued.is_set():
                return found
