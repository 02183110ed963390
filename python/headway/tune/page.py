"""An experiment with settings as an HTML page: the effects, and every block as a point.

The page needs matplotlib.
"""

from __future__ import annotations

from headway.output import page
from headway.output.metadata import Metadata
from headway.output.results import Result, Results
from headway.output.table import Chart, Series, listing
from headway.tune import text
from headway.tune.goals import Figure
from headway.tune.setting import Setting
from headway.tune.trials import Trials

NAME = "tune"
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
    page.write(path, metadata, [section(trials)], INTRODUCTION)


def section(trials: Trials) -> page.Section:
    found = results(trials)
    headings = {_label(figure): figure.key for figure in trials.figures}
    return page.Section(
        NAME,
        f"the goal is {trials.goal}",
        text.advice(trials),
        found,
        [
            text.effects(trials),
            listing(found, "Medians of the blocks", ["setting"], headings),
        ],
        [_chart(trials, figure) for figure in trials.figures],
    )


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
    return Results(NAME, _unit(trials.goal.figure), rows, {})


def _chart(trials: Trials, figure: Figure) -> Chart:
    settings = [trials.control, *trials.candidates]
    series = [_series(trials, setting, figure) for setting in settings]
    return Chart(f"{figure.name} of each block", "round", _label(figure), series)


def _series(trials: Trials, setting: Setting, figure: Figure) -> Series:
    found = [
        (float(block.round), block.figures[figure.key])
        for block in trials.blocks_of(setting)
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
