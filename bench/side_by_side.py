"""The common part of the benchmarks of servers: options, rounds in which a server may fail, and
comparisons.

Results name a server that is not installed or that fails, with the reason, and the sitting
continues without it. This module does not know what a cell measures.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import sitting
from figures import Figures, number, print_targets, target
from installed import PEERS_FOLDER, Installed
from peers import HEADWAY, PEERS, Server

from headway.output.claim import Statement
from headway.output.results import Result, Results
from headway.programs import signals
from headway.programs.processes import ProgramError
from headway_lab.results_file import KeptExperiment


class ServerCell(Protocol):
    @property
    def server(self) -> Server: ...


Cell = TypeVar("Cell", bound=Any)
Measure = Callable[[Cell], dict[str, float]]


def add_options(parser: sitting.Parser, peers: Sequence[str] = tuple(PEERS)) -> None:
    parser.add_argument(
        "--peer",
        nargs="*",
        choices=tuple(PEERS),
        default=peers,
        metavar="NAME",
        help=f"which peers beside Headway, or none: {', '.join(PEERS)} "
        f"(default: {' '.join(peers)})",
    )
    parser.add_argument(
        "--peers-folder",
        type=Path,
        default=PEERS_FOLDER,
        metavar="DIR",
        help="the peers' environment, made by bench/install_peers.py (default: .venvs/peers)",
    )


def installed_peers(options: argparse.Namespace) -> Installed:
    installed = Installed(list(dict.fromkeys(options.peer)), options.peers_folder)
    print(installed)
    return installed


def headways(options: argparse.Namespace, processes: int, threads: int) -> list[Server]:
    """Headway under its default policy, or under the policies that the options name."""
    return [Server(HEADWAY, processes, threads, policy) for policy in options.policy or (None,)]


class Sitting:
    """Figures of cells that have a server each, and the reasons for the missing ones."""

    def __init__(self, name: str, installed: Installed) -> None:
        self.name = name
        self.figures: Figures[Any] = Figures()
        self.missing: dict[str, str] = dict(installed.absent)
        self._failed: dict[Any, str] = {}

    def run(self, rounds: int, cells: Sequence[Cell], measure: Measure[Cell]) -> list[Cell]:
        """Measures all rounds. Returns the cells that succeeded, each once."""
        cells = list(dict.fromkeys(cells))

        def measure_or_note(cell: Cell) -> dict[str, float]:
            if cell in self._failed:
                return {}
            try:
                return measure(cell)
            except ProgramError as error:
                if signals.continued.is_set():
                    raise
                self._failed[cell] = str(error)
                self.missing[str(cell)] = str(error)
                return {}

        for cell, found in sitting.rounds(self.name, rounds, cells, measure_or_note):
            self.figures.record(cell, **found)
        if all(cell in self._failed for cell in cells):
            raise ProgramError(next(iter(self._failed.values()), "there is nothing to measure"))
        return [cell for cell in cells if cell not in self._failed]

    def conclude(
        self, targets: Sequence[Statement], parameters: Callable[[Any], dict[str, Any]]
    ) -> sitting.Experiments:
        """As `end`, for cells that have a server: a failure of Headway misses a target."""
        failed = [cell for cell in self._failed if is_headway(cell)]
        targets = [*targets, *(target(f"{cell}: came through", 0.0, 1.0) for cell in failed)]
        return self.end(targets, parameters)

    def end(
        self, targets: Sequence[Statement], parameters: Callable[[Any], dict[str, Any]]
    ) -> sitting.Experiments:
        """Prints what could not be measured and how the targets were met. Returns the experiments,
        and one more that lists what is missing."""
        for what, reason in self.missing.items():
            print(f"without {what}: {reason}")
        print()
        print_targets(targets)
        experiments = self.figures.experiments(self.name, parameters, targets)
        return [*experiments, missing(self.name, self.missing)]


def missing(name: str, reasons: Mapping[str, str]) -> KeptExperiment:
    """The experiment that lists what could not be measured."""
    rows = [Result({"missing": what}, left_out=reason) for what, reason in reasons.items()]
    return KeptExperiment(Results(f"{name} missing", "", rows, {}), None, [])


def is_peer(cell: ServerCell) -> bool:
    return cell.server.name in PEERS


def is_headway(cell: ServerCell) -> bool:
    return cell.server.name == HEADWAY


def best(
    figures: Figures[Any], cells: Sequence[Cell], figure: str, *, lowest: bool = False
) -> Cell | None:
    """The cell with the highest median of a figure, or the lowest."""
    choose = min if lowest else max
    return choose(cells, key=lambda cell: figures.median(cell, figure), default=None)


def spread_text(values: Sequence[float], scale: float = 1.0) -> str:
    """A median with its range; - without values."""
    if not values:
        return "-"
    scaled = [value * scale for value in values]
    middle = number(statistics.median(scaled))
    return f"{middle} [{number(min(scaled))}-{number(max(scaled))}]"


def ratio_text(figures: Figures[Any], cell: Any, other: Any, figure: str) -> str:
    """The median of the ratios round by round, with their range."""
    return "-" if other is None else spread_text(figures.ratios(cell, other, figure))
