"""The page of experiments: what `headway.output.page` shows of them, and the text before it."""

from __future__ import annotations

from headway.output import page
from headway.output.metadata import Metadata
from headway.output.page import Introduction, Section
from headway.output.results import Results
from headway.output.statistics import CONFIDENCE, UNSTABLE_WIDTH
from headway_lab.experiment import Experiment, Shown

TITLE = "Experiments on the GIL"
MEASURED = (
    "Each value was measured by processes of its own, and all rows of an experiment in every "
    "round, so that what else the machine did hit all alike. "
)
SIMULATED = (
    "Nothing was measured: each value is that of a simulation in virtual time, with a seed of its "
    "own. "
)
FIGURES = (
    "A figure is the median of a row's "
    f"values; below it are its {100 * CONFIDENCE:g} % confidence interval (of five values or "
    "fewer, their whole range) and what was published for the same. A row is marked as unstable "
    "if there is one value only, or if that interval is wider than "
    f"{100 * UNSTABLE_WIDTH:g} % of the median. In charts bars and bands are confidence "
    "intervals, and what was published is hollow and dashed. Statements are sentences that the "
    "published results make, or that Headway makes: a number that was computed from these "
    "values decides whether they agree."
)
BESIDE = ", with what others published beside it"
OF_BENCH = Introduction(
    TITLE, "Measured by <code>headway bench</code>", MEASURED + FIGURES, BESIDE, lists_sections=True
)
OF_SIMULATION = Introduction(
    TITLE,
    "Simulated by <code>headway simulate</code>",
    SIMULATED + FIGURES,
    BESIDE,
    lists_sections=True,
)


def write(path: str, metadata: Metadata, shown: Shown) -> None:
    """Writes the page. `path` is as `json_file.check_path` returns it. Raises CommandError."""
    page.write(path, metadata, _sections(shown), _introduction(metadata))


def draw(metadata: Metadata, shown: Shown) -> str:
    return page.draw(metadata, _sections(shown), _introduction(metadata))


def _introduction(metadata: Metadata) -> Introduction:
    return OF_SIMULATION if "simulated" in metadata else OF_BENCH


def _sections(shown: Shown) -> list[Section]:
    return [_section(experiment, results) for experiment, results in shown]


def _section(experiment: Experiment, results: Results) -> Section:
    return Section(
        experiment.name,
        experiment.summary,
        experiment.shows,
        results,
        experiment.tables(results),
        experiment.charts(results),
        experiment.statements(results),
    )
