"""The figures of a block, and the goal that a candidate is chosen by.

A goal is a figure, and may have floors: `p99, throughput >= 0.95` looks for the lowest p99 among
the candidates that keep 95 % of the throughput.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from headway.options import Kind
from headway.report import units


class Figure(NamedTuple):
    """A figure of a block. `name` is its name in goals, `key` the one in the JSON document."""

    name: str
    key: str
    smaller_is_better: bool

    def show(self, value: float) -> str:
        if self.key.endswith("_per_s"):
            return f"{value:.4g}/s"
        if self.key.endswith("_s"):
            return units.seconds(value)
        if self.key.endswith("_bytes"):
            return f"{value / 1e6:.0f} MB"
        return f"{value:.4g}"


TIME = Figure("time", "time_s", smaller_is_better=True)
CPU = Figure("cpu", "cpu_s", smaller_is_better=True)
MEMORY = Figure("memory", "memory_bytes", smaller_is_better=True)
OF_PROGRAM = (TIME, CPU, MEMORY)
P50 = Figure("p50", "p50_s", smaller_is_better=True)
P99 = Figure("p99", "p99_s", smaller_is_better=True)
THROUGHPUT = Figure("throughput", "requests_per_s", smaller_is_better=False)
CPU_PER_REQUEST = Figure("cpu", "cpu_per_request_s", smaller_is_better=True)
OF_SERVER = (P99, P50, THROUGHPUT, CPU_PER_REQUEST)


def metric(smaller_is_better: bool) -> Figure:
    """The number that a program prints."""
    return Figure("metric", "metric", smaller_is_better)


class Goal(NamedTuple):
    """`floors` are the least shares of the control's figure that a winner must keep. For a figure
    of which less is better, the share is of what is allowed: 0.95 allows the control's by 0.95."""

    figure: Figure
    floors: tuple[tuple[Figure, float], ...] = ()

    def __str__(self) -> str:
        floors = (f"{figure.name} >= {least:g}" for figure, least in self.floors)
        return ", ".join((self.figure.name, *floors))


class GoalKind(Kind):
    """Parses a goal of these figures."""

    metavar = "GOAL"

    def __init__(self, figures: tuple[Figure, ...]) -> None:
        self._figures = {each.name: each for each in figures}
        names = ", ".join(self._figures)
        self.allowed = f"one of {names}, and floors after it, as {figures[0].name}, cpu >= 0.9"

    def parse(self, text: str) -> Goal:
        first, *rest = (part.strip() for part in text.split(","))
        return Goal(self._figure(first), tuple(map(self._floor, rest)))

    def _floor(self, text: str) -> tuple[Figure, float]:
        found = re.fullmatch(r"(\w+) *>= *([0-9]{0,3}(?:\.[0-9]{1,6})?)", text)
        if not found or not found[2] or not 0 < float(found[2]) <= 1:
            raise ValueError
        return self._figure(found[1]), float(found[2])

    def _figure(self, name: str) -> Figure:
        if name not in self._figures:
            raise ValueError
        return self._figures[name]


Figures = Mapping[str, float]


def log_ratio(figure: Figure, value: Figures, control: Figures) -> float | None:
    """The logarithm of a figure's ratio to the control's; None where there is no ratio."""
    first, second = value.get(figure.key, 0.0), control.get(figure.key, 0.0)
    return math.log(first / second) if first > 0 and second > 0 else None
