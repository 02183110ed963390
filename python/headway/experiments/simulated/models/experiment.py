"""A simulated experiment: one of `headway bench`, with values from virtual time.

Rows, tables, charts and statements are those of the experiment. In the place of the processes that
would bring a value there is a scenario, and what is made of its outcome. It knows nothing of rounds
or of the command line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple

from headway.experiments.experiment import MODES, STOCK, Choice, Experiment, Measured, Row
from headway.experiments.results import Parameters
from headway.experiments.simulated.costs import Costs
from headway.experiments.simulated.machine import Machine
from headway.experiments.simulated.samples import NS
from headway.experiments.simulated.scenario import Gil, Outcome, Scenario, Thread, ThreadOutcome

# The policy of CPython without Headway.
STOCK_POLICY = "interval"
FREE_THREADED = MODES[-1]


@dataclass(frozen=True)
class Conditions:
    """Under which a value is had. Another seed brings another value."""

    machine: Machine
    costs: Costs
    seed: int = 1

    def scenario(
        self, gils: Sequence[Gil], threads: Sequence[Thread], begin_s: float, seconds: float
    ) -> Scenario:
        """Counted is from `begin_s` for so many seconds."""
        return Scenario(
            machine=asdict(self.machine),
            gils=gils,
            threads=threads,
            begin_ns=begin_s * NS,
            end_ns=(begin_s + seconds) * NS,
            seed=self.seed,
        )


class Scene(NamedTuple):
    """A row, and how much of it a timeline has."""

    parameters: Parameters
    seconds: float


class Simulated(ABC):
    """One name of `headway simulate`. An object without state of its own."""

    experiment: ClassVar[Experiment]
    # The scene that a timeline explains. Parameters that the user chooses replace its own.
    scene: ClassVar[Scene]

    def rows(self, choice: Choice, machine: Machine) -> list[Row]:
        """Whether one can be had is a question of this machine, not of the one that simulates."""
        return [
            replace(row, left_out=self.left_out(row, machine))
            for row in self.experiment.rows(choice)
        ]

    def left_out(self, row: Row, machine: Machine) -> str:
        """Why a row cannot be simulated; empty if it can."""
        return ""

    def calibration(self, choice: Choice, conditions: Conditions) -> Parameters:
        """The calibration that the experiment would have measured before all rounds."""
        return {"cpus": conditions.machine.cores}

    @abstractmethod
    def scenario(self, row: Row, choice: Choice, conditions: Conditions) -> Scenario: ...

    @abstractmethod
    def measured(
        self, row: Row, scenario: Scenario, outcome: Outcome, conditions: Conditions
    ) -> Measured:
        """Raises BenchmarkError if nothing happened that could be counted."""


def gil_of(row: Row) -> Gil:
    """As the row schedules it."""
    policy = row.parameters["policy"]
    interval_ns = row.parameters["switch_interval"] * NS
    return Gil(STOCK_POLICY if policy == STOCK else policy, interval_ns)


def gils_of(row: Row) -> list[Gil]:
    """The one that all of the row's threads have, or none."""
    return [] if row.parameters["mode"] == FREE_THREADED else [gil_of(row)]


def own_gil() -> Gil:
    """That of a process or a sub-interpreter with one thread: nobody asks for it."""
    return Gil()


def threads_named(outcome: Outcome, scenario: Scenario, prefix: str) -> list[ThreadOutcome]:
    """The outcome of the threads whose names begin with `prefix`, in the scenario's order."""
    pairs = zip(scenario.threads, outcome.threads, strict=True)
    return [found for thread, found in pairs if thread.name.startswith(prefix)]


def window_s(scenario: Scenario) -> float:
    return (scenario.end_ns - scenario.begin_ns) / NS


def total(threads: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(thread[name] for thread in threads))
