"""The values of a simulated experiment: every row once a round, each round with a seed of its own.

This module does not know how a value is computed, or how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headway.output.results import Result, Results
from headway.programs.processes import ProgramError
from headway_lab.experiment import Choice
from headway_lab.simulated.models.experiment import Conditions, Simulated

Progress = Callable[[str], None]


class Rounds:
    """The rounds of one experiment. `results` can be shown at any time, however the rounds end."""

    def __init__(
        self, simulated: Simulated, choice: Choice, conditions: Conditions, progress: Progress
    ) -> None:
        experiment = simulated.experiment
        self._simulated = simulated
        self._choice = choice
        self._conditions = conditions
        self._progress = progress
        self._rows = simulated.rows(choice, conditions.machine)
        self.results = Results(
            experiment.name,
            experiment.unit,
            [
                Result(row.parameters, experiment.published(row.parameters), row.left_out)
                for row in self._rows
            ],
            simulated.calibration(choice, conditions),
        )

    def run(self, values: int) -> None:
        """Runs the rounds. KeyboardInterrupt is raised as it comes, and the results so far are
        kept."""
        pairs = list(zip(self._rows, self.results.rows, strict=True))
        pairs = [(row, result) for row, result in pairs if not row.left_out]
        name = self.results.name
        for index in range(values):
            conditions = replace(self._conditions, seed=self._conditions.seed + index)
            for place, (row, result) in enumerate(pairs, start=1):
                self._progress(
                    f"{name}: round {index + 1} of {values}, {place} of {len(pairs)}: {row}"
                )
                scenario = self._simulated.scenario(row, self._choice, conditions)
                try:
                    found = self._simulated.measured(row, scenario, scenario.run(), conditions)
                except ProgramError as error:
                    result.failures.append(str(error))
                    continue
                result.add(*found)
