"""An experiment: its rows, the measurement of one value, and its tables, charts and statements.

A *row* is one combination of parameters, and a line of the results. A *value* is the result of one
measurement of a row, in processes of its own. This module does not know rounds, statistics, or how
tables and charts are drawn. Tables, charts and statements are computed from `Results` alone, so
that a file of results shows the same as the terminal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from headway.experiments.claim import Statement
from headway.experiments.interpreters import Interpreter
from headway.experiments.processes import DEFAULT_SWITCH_INTERVAL_S, Setting
from headway.experiments.results import Parameters, Results, describe
from headway.experiments.table import Chart, Table

# In the place of a policy: plain python, without Headway.
STOCK = "stock"
# Where work runs: threads of one process, processes, sub-interpreters with a GIL each, or threads
# without a GIL.
MODES = ("threads", "processes", "interpreters", "free-threaded")


@dataclass(frozen=True)
class Choice:
    """The user's choice; None selects the experiment's own default.

    `policies` begin with STOCK unless the user left it out. `free_threaded` is the interpreter of
    rows without a GIL: one that was named for it, or `interpreter` itself if it is such a build.
    `seconds` is how long one value is measured.
    """

    interpreter: Interpreter
    free_threaded: Interpreter | None = None
    policies: tuple[str, ...] = (STOCK,)
    switch_intervals_s: tuple[float, ...] | None = None
    threads: tuple[int, ...] | None = None
    workloads: tuple[str, ...] | None = None
    modes: tuple[str, ...] | None = None
    shapes: tuple[tuple[int, int], ...] | None = None
    server: str = "headway"
    seconds: float | None = None
    quick: bool = False

    def setting(
        self, policy: str = STOCK, switch_interval_s: float = DEFAULT_SWITCH_INTERVAL_S
    ) -> Setting:
        """With a GIL, also on a build that can do without."""
        options = ("-X", "gil=1") if self.interpreter.free_threading else ()
        named = None if policy == STOCK else policy
        return Setting(named, switch_interval_s, self.interpreter.path, options)

    def free_threaded_setting(self) -> Setting:
        """Without a GIL, which nobody schedules."""
        assert self.free_threaded is not None
        return Setting(None, DEFAULT_SWITCH_INTERVAL_S, self.free_threaded.path, ("-X", "gil=0"))

    @property
    def no_free_threading(self) -> str:
        """Why rows without a GIL are left out; empty if they are not."""
        if self.free_threaded is not None:
            return ""
        return f"CPython {self.interpreter.version} is no free-threaded build (--free-threaded)"

    @property
    def no_own_gils(self) -> str:
        """Why rows of sub-interpreters with GILs of their own are left out; empty if they are
        not."""
        if self.interpreter.has_own_gils:
            return ""
        return f"CPython {self.interpreter.version} has no own-GIL sub-interpreters (3.12 has)"


@dataclass(frozen=True)
class Row:
    """`parameters` are its name, in results and from one file to another: text, numbers, booleans.
    `setting` is for the measurement alone. `left_out` is the reason why it cannot be measured."""

    parameters: Parameters
    setting: Setting
    left_out: str = ""

    def __str__(self) -> str:
        return describe(self.parameters)


class Measured(NamedTuple):
    """One value, in the experiment's unit. `figures` are further numbers, whose names carry their
    units (`p99_s`); `samples_s` single times, gathered over a row's values into a histogram."""

    value: float
    figures: Mapping[str, float] = {}
    samples_s: Sequence[float] = ()


class Experiment(ABC):
    """One name of `headway bench`. An object without state of its own."""

    name: ClassVar[str]
    unit: ClassVar[str]
    # A line for the list of experiments.
    summary: ClassVar[str]
    # The two sentences that a report opens with: what it does, and what it shows.
    shows: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    # Of the options that choose rows (Choice's fields in the words of the command line), those that
    # it heeds; another is refused.
    heeds: ClassVar[frozenset[str]] = frozenset({"policy", "switch-interval", "threads"})
    # The values that --workload allows, if the experiment heeds that option.
    known_workloads: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def rows(self, choice: Choice) -> list[Row]:
        """In the order of the results. Raises CommandError (exit code 2) for what cannot be."""

    def calibrate(self, choice: Choice) -> Parameters:
        """Measures once, before all rounds, for example how many loops a millisecond takes. The
        results keep the return value."""
        return {}

    @abstractmethod
    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        """One value, by processes that it starts and ends. Raises BenchmarkError if one fails."""

    @abstractmethod
    def published(self, parameters: Parameters) -> float | None:
        """The published value for such a row, in this experiment's unit."""

    @abstractmethod
    def tables(self, results: Results) -> list[Table]: ...

    def charts(self, results: Results) -> list[Chart]:
        return []

    def statements(self, results: Results) -> list[Statement]:
        """The published claims, each with the number that decides whether these results agree.
        Claims that the measured rows do not cover are left out."""
        return []
