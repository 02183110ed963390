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

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results, describe
from headway.output.table import Chart, Table
from headway.programs.interpreters import Interpreter
from headway_lab.setting import Setting

# The places in which work runs: threads of one process, processes, sub-interpreters with a GIL
# each, or threads without a GIL.
MODES = ("threads", "processes", "interpreters", "free-threaded")


@dataclass(frozen=True)
class Choice:
    """The user's choice; None selects the experiment's own default.

    `policies` begin with STOCK unless the user left it out. `free_threaded` is the interpreter for
    rows without a GIL: the one that the user named for it, or `interpreter` itself if it is such a
    build. `seconds` is the duration of one value.
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
        """With a GIL, also on a build that can run without one."""
        options = ("-X", "gil=1") if self.interpreter.free_threading else ()
        named = None if policy == STOCK else policy
        return Setting(named, switch_interval_s, self.interpreter.path, options)

    def free_threaded_setting(self) -> Setting:
        """Without a GIL, and so without a scheduler of the GIL."""
        assert self.free_threaded is not None
        return Setting(None, DEFAULT_SWITCH_INTERVAL_S, self.free_threaded.path, ("-X", "gil=0"))

    @property
    def no_free_threading(self) -> str:
        """The reason why rows without a GIL are left out; empty if they are not."""
        if self.free_threaded is not None:
            return ""
        return f"CPython {self.interpreter.version} is no free-threaded build (--free-threaded)"

    @property
    def no_own_gils(self) -> str:
        """The reason why rows of sub-interpreters with GILs of their own are left out; empty if
        they are not."""
        if self.interpreter.has_own_gils:
            return ""
        return f"CPython {self.interpreter.version} has no own-GIL sub-interpreters (3.12 has)"


@dataclass(frozen=True)
class Row:
    """`parameters` identify the row in results and between files: text, numbers, booleans. Only the
    measurement uses `setting`. `left_out` is the reason why the row cannot be measured."""

    parameters: Parameters
    setting: Setting
    left_out: str = ""

    def __str__(self) -> str:
        return describe(self.parameters)


class Measured(NamedTuple):
    """One value, in the experiment's unit. `figures` are further numbers, whose names have their
    units (`p99_s`). `samples_s` are single times; the times of all values of a row make a
    histogram."""

    value: float
    figures: Mapping[str, float] = {}
    samples_s: Sequence[float] = ()


class Experiment(ABC):
    """The experiment behind one name of `headway bench`. The object has no state."""

    name: ClassVar[str]
    unit: ClassVar[str]
    # A line for the list of experiments.
    summary: ClassVar[str]
    # The first two sentences of a report: what the experiment does, and what it shows.
    shows: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    # The options for choosing rows that the experiment supports (Choice's fields, spelled as on the
    # command line). Other such options are refused.
    heeds: ClassVar[frozenset[str]] = frozenset({"policy", "switch-interval", "threads"})
    # The values that --workload allows, if the experiment supports that option.
    known_workloads: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def rows(self, choice: Choice) -> list[Row]:
        """The rows in the order of the results. Raises CommandError (exit code 2) for an impossible
        choice."""

    def calibrate(self, choice: Choice) -> Parameters:
        """Measures once, before all rounds, for example how many loops a millisecond takes. The
        results keep the return value."""
        return {}

    @abstractmethod
    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        """Measures one value, with processes that it starts and ends. Raises ProgramError if one
        fails."""

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


# Experiments with their results, as files and pages show them.
Shown = Sequence[tuple[Experiment, Results]]
