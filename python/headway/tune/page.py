"""An experiment with settings as an HTML page: the effects, and every block as a point.

The page is that of `headway bench`, so it needs matplotlib.
"""

from __future__ import annotations

from headway.experiments.experiment import Choice, Experiment, Measured, Row
from headway.experiments.metadata import Metadata
from headway.experiments.output import page
from headway.experiments.results import Parameters, Result, Results
from headway.experiments.table import Chart, Series, Table, listing
from headway.tune import text
from headway.tune.goals import Figure
from headway.tune.setting import Setting
from headway.tune.trials import Trials

INTRODUCTION = page.Introduction(
    title="An experiment with settings of the GIL",
    origin="Measured by <code>headway tune</code>",
    how_to_read=(
        "Each value is that of one block: one run of a program, or some seconds of a server. Each "
        "round had a block of every setting that was not settled yet, in random order. Effects are "
        "ratios to the present setting of the same round, with intervals that are valid however "
        "early the experiment ended. The charts have every block. In the last table a figure is "
        "the median of a setting's blocks, above its 95 % confidence interval (of five blocks or "
        "fewer, their whole range)."
    ),
)


def write(path: str, trials: Trials, metadata: Metadata) -> None:
    """`path` as `json_file.check_path` returns it. Raises CommandError."""
    page.write(path, metadata, [(Tuned(trials), results(trials))], INTRODUCTION)


def results(trials: Trials) -> Results:
    """A row for each setting, with the goal's figure as its values and all figures beside it."""
    rows = []
    for setting in (trials.control, *trials.candidates):
        row = Result({"setting": str(setting)})
        for block in trials.blocks_of(setting):
            if block.cut:
                row.failures.append(block.cut)
            elif trials.goal.figure.key in block.figures:
                row.add(block.figures[trials.goal.figure.key], block.figures, ())
        rows.append(row)
    return Results(Tuned.name, _unit(trials.goal.figure), rows, {})


class Tuned(Experiment):
    """An experiment that is over. It is never measured again."""

    name = "tune"

    def __init__(self, trials: Trials) -> None:
        # These belong to the class in experiments that have a name of `headway bench`.
        self.unit = _unit(trials.goal.figure)  # type: ignore[misc]
        self.higher_is_better = not trials.goal.figure.smaller_is_better  # type: ignore[misc]
        self.summary = f"the goal is {trials.goal}"  # type: ignore[misc]
        self.shows = text.advice(trials)  # type: ignore[misc]
        self._trials = trials

    def rows(self, choice: Choice) -> list[Row]:
        return []

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        raise NotImplementedError("an experiment that is over")

    def published(self, parameters: Parameters) -> float | None:
        return None

    def tables(self, results: Results) -> list[Table]:
        headings = {_label(figure): figure.key for figure in self._trials.figures}
        return [
            text.effects(self._trials),
            listing(results, "Medians of the blocks", ["setting"], headings),
        ]

    def charts(self, results: Results) -> list[Chart]:
        settings = [self._trials.control, *self._trials.candidates]
        return [
            Chart(
                f"{figure.name} of each block",
                "round",
                _label(figure),
                [self._series(setting, figure) for setting in settings],
            )
            for figure in self._trials.figures
        ]

    def _series(self, setting: Setting, figure: Figure) -> Series:
        found = [
            (float(block.round), block.figures[figure.key])
            for block in self._trials.blocks_of(setting)
            if not block.cut and figure.key in block.figures
        ]
        return Series(str(setting), [(place, value, value, value) for place, value in found])


def _unit(figure: Figure) -> str:
    for end, unit in (("_per_s", "1/s"), ("_s", "s"), ("_bytes", "bytes")):
        if figure.key.endswith(end):
            return unit
    return ""


def _label(figure: Figure) -> str:
    unit = _unit(figure)
    return f"{figure.name} ({unit})" if unit else figure.name
