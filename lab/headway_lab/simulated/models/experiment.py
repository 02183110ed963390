"""A simulated experiment: one of `headway bench`, with values from virtual time.

Its rows, tables, charts and statements are those of the measured experiment. Instead of processes,
a scenario and its outcome give a value. This module does not know rounds or the command line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple

from headway.output.metadata import STOCK
from headway.output.results import Parameters
from headway_lab.experiment import MODES, Choice, Experiment, Measured, Row
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.samples import NS
from headway_lab.simulated.scenario import Gil, Outcome, Scenario, Thread, ThreadOutcome

# The policy of CPython without Headway.
STOCK_POLICY = "interval"
FREE_THREADED = MODES[-1]


@dataclass(frozen=True)
class Conditions:
    """The conditions of a value. Another seed gives another value."""

    machine: Machine
    costs: Costs
    seed: int = 1

    def scenario(
        self, gils: Sequence[Gil], threads: Sequence[Thread], begin_s: float, seconds: float
    ) -> Scenario:
        """A scenario that counts for the given seconds from `begin_s` on."""
        return Scenario(
            machine=asdict(self.machine),
            gils=gils,
            threads=threads,
            begin_ns=begin_s * NS,
            end_ns=(begin_s + seconds) * NS,
            seed=self.seed,
        )


class Scene(NamedTuple):
    """A row, and the part of it that a timeline shows."""

    parameters: Parameters
    seconds: float


class Simulated(ABC):
    """The experiment behind one name of `headway simulate`. The object has no state."""

    experiment: ClassVar[Experiment]
    # The scene that a timeline explains. Parameters that the user chooses replace those of the
    # scene.
    scene: ClassVar[Scene]

    def rows(self, choice: Choice, machine: Machine) -> list[Row]:
        """The simulated machine decides whether a row is possible, and not the machine that
        simulates."""
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
        """Raises ProgramError if the window has nothing to count."""


def gil_of(row: Row) -> Gil:
    """A GIL with the row's policy and switch interval."""
    policy = row.parameters["policy"]
    interval_ns = row.parameters["switch_interval"] * NS
    return Gil(STOCK_POLICY if policy == STOCK else policy, interval_ns)


def gils_of(row: Row) -> list[Gil]:
    """The GIL that all of the row's threads share, if there is one."""
    return [] if row.parameters["mode"] == FREE_THREADED else [gil_of(row)]


def own_gil() -> Gil:
    """The GIL of a process or sub-interpreter with a single thread: no other thread requests it."""
    return Gil()


def threads_named(outcome: Outcome, scenario: Scenario, prefix: str) -> list[ThreadOutcome]:
    """The outcome of the threads whose names begin with `prefix`, in the scenario's order."""
    pairs = zip(scenario.threads, outcome.threads, strict=True)
    return [found for thread, found in pairs if thread.name.startswith(prefix)]


def window_s(scenario: Scenario) -> float:
    return (scenario.end_ns - scenario.begin_ns) / NS


def total(threads: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(thread[name] for thread in threads))
