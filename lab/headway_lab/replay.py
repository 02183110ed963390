"""`headway bench --from FILE`: shows the experiments of a file as if they had just been measured.

Tables, charts and statements are made again from the results. Experiments that this version does
not have (those of the developer benchmarks, or of another version) are listed row by row. This
module does not draw.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from headway.errors import CommandError
from headway.output.metadata import Metadata, interpreters_in
from headway.output.results import Parameters, Results
from headway.output.table import Cell, Table, cell_of
from headway.report import columns
from headway_lab import results_file
from headway_lab.experiment import Choice, Experiment, Measured, Row
from headway_lab.measured import EXPERIMENTS
from headway_lab.results_file import KeptExperiment

# These options, by argparse's names, choose what is shown. All others choose or change
# measurements.
SHOWING = {"names", "source", "html"}

# The columns of a heading. A line of a file from elsewhere may have any length.
MAX_HEADING = 300

Shown = list[tuple[Experiment, Results]]


def check_options(options: argparse.Namespace, defaults: argparse.Namespace) -> None:
    """Raises CommandError (exit code 2) for options that have no effect together with --from."""
    for name, default in vars(defaults).items():
        if name not in SHOWING and getattr(options, name) != default:
            raise CommandError(
                f"--{name.replace('_', '-')}: --from measures nothing; beside it there are NAME "
                "and --html",
                exit_code=2,
            )


def read(file: str, names: Iterable[str] = ()) -> tuple[Metadata, Shown]:
    """The metadata, and all experiments in the order of the file, or the named ones. Raises
    CommandError (exit code 2)."""
    kept = results_file.read(file, "--from")
    found = {each.results.name: each for each in kept.experiments}
    for name in names:
        if name not in found:
            there = ", ".join(found) or "none"
            raise CommandError(f"NAME {name!r}: there are in {file!r}: {there}", exit_code=2)
    chosen = [found[name] for name in dict.fromkeys(names)] or kept.experiments
    return kept.metadata, [(_experiment(each, file), each.results) for each in chosen]


def _experiment(kept: KeptExperiment, file: str) -> Experiment:
    results = kept.results
    experiment = EXPERIMENTS.get(results.name) or Listed(kept)
    try:
        experiment.tables(results)
        experiment.charts(results)
        experiment.statements(results)
    except Exception as error:
        # Any exception means that this version's experiment does not have such rows.
        raise CommandError(
            f"--from {file!r}: the rows of {results.name} are not those of this version's "
            f"{results.name}: {type(error).__name__} {error}",
            exit_code=2,
        ) from error
    return experiment


def heading(metadata: Metadata) -> str:
    """The heading, with the metadata that the file has."""
    policies = ", ".join(map(str, metadata.get("policies") or []))
    simulated = metadata.get("simulated") or {}
    parts = [
        interpreters_in(metadata),
        f"{metadata['cpus']} cores" if simulated and "cpus" in metadata else "",
        f"seed {simulated['seed']}" if "seed" in simulated else "",
        f"policies: {policies}" if policies else "",
        f"measured at {metadata['time']}" if "time" in metadata else "",
        f"on {metadata['cpu']}" if "cpu" in metadata else "",
    ]
    return columns.name("; ".join(filter(None, parts)), MAX_HEADING)


class Listed(Experiment):
    """An experiment that exists only in its file. It is never measured."""

    summary = "of a file"
    shows = "Its rows and statements are shown as the file has them."

    def __init__(self, kept: KeptExperiment) -> None:
        # The name and unit of this object; in other experiments they belong to the class.
        self.name = kept.results.name  # type: ignore[misc]
        self.unit = kept.results.unit  # type: ignore[misc]
        self.higher_is_better = kept.higher_is_better is not False  # type: ignore[misc]
        self._statements = kept.statements

    def rows(self, choice: Choice) -> list[Row]:
        return []

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        raise NotImplementedError(f"{self.name} is of a file")

    def published(self, parameters: Parameters) -> float | None:
        return None

    def tables(self, results: Results) -> list[Table]:
        names = list(dict.fromkeys(name for each in results for name in each.parameters))
        headings = [*(name.replace("_", " ") for name in names), results.unit or "value"]
        rows = [
            [*(Cell(text=_text(each.parameters.get(name))) for name in names), cell_of(each)]
            for each in results
        ]
        return [Table(results.name, headings, rows, len(names)), *self._verdicts()]

    def _verdicts(self) -> list[Table]:
        """The verdicts that were reached when the file was written."""
        rows = [
            [
                Cell(text=each.text),
                Cell(each.value, text="-"),
                Cell(text=each.allowed),
                Cell(text="agrees" if each.agrees else "differs"),
            ]
            for each in self._statements
        ]
        return [Table("statements", ["", "value", "allowed", ""], rows)] if rows else []


def _text(value: object) -> str:
    return "" if value is None else str(value)
