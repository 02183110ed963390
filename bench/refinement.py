"""Constants that no probe sees, from measurements of the same machine.

How a kernel places the threads that it wakes, and what a wake-up takes right there, decide how many
requests an echo server answers before the thread that computes is back; a probe of wake-ups alone
does not tell. So a few constants are moved until what is simulated of `echo` is close to what was
measured. The steps are drawn at random, from a seed; the same measurements give the same constants.
This module does not know how anything was measured.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from headway.output.results import Parameters
from headway_lab.experiment import Choice, Row
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models.experiment import Conditions, Simulated
from headway_lab.simulated.scenario import Distribution

STEPS = 400
# The standard deviation of a step's factor, as its logarithm.
STEP = 0.35
# How far a row that is way off counts: no more than one that is off by this factor.
FARTHEST = 4.0
MACHINE = (
    "wake_idle_ns",
    "wake_idle_long_ns",
    "long_idle_ns",
    "cold_ns",
    "switch_ns",
    "call_ns",
    "call_long_ns",
    "slice_ns",
    "hot_ns",
    "stolen_every_ns",
    "stolen_ns",
    "check_ns",
)
# These are one constant: how much of a core a request takes.
ECHO_COSTS = ("tcp_send_ns", "tcp_receive_ns", "echo_server_ns", "echo_client_ns")

Progress = Callable[[str], None]


class Observed(NamedTuple):
    """A row that was measured, with its median."""

    parameters: Parameters
    value: float


class Comparison:
    """Compares simulated rows with measured ones."""

    def __init__(
        self, simulated: Simulated, choice: Choice, observed: Sequence[Observed], values: int = 1
    ) -> None:
        self._simulated = simulated
        self._choice = choice
        self._values = values
        self._observed = list(observed)

    def simulate(self, conditions: Conditions) -> list[float]:
        """The median of the values of each row."""
        rows = {_key(row.parameters): row for row in self._rows(conditions)}
        return [self._value(rows[_key(each.parameters)], conditions) for each in self._observed]

    def error(self, conditions: Conditions) -> float:
        """The mean of the logarithms of by how much rows are off."""
        far = math.log(FARTHEST)
        found = self.simulate(conditions)
        pairs = zip(found, self._observed, strict=True)
        return sum(min(far, abs(_log_ratio(value, row.value))) for value, row in pairs) / len(found)

    def _rows(self, conditions: Conditions) -> list[Row]:
        return self._simulated.rows(self._choice, conditions.machine)

    def _value(self, row: Row, conditions: Conditions) -> float:
        values = []
        for index in range(self._values):
            seeded = replace(conditions, seed=conditions.seed + index)
            scenario = self._simulated.scenario(row, self._choice, seeded)
            values.append(self._simulated.measured(row, scenario, scenario.run(), seeded).value)
        return sorted(values)[len(values) // 2]


def refine(
    comparison: Comparison, conditions: Conditions, progress: Progress, steps: int = STEPS
) -> Conditions:
    """The conditions that come closest, of those tried."""
    draw = random.Random(conditions.seed)
    best, least = conditions, comparison.error(conditions)
    for step in range(steps):
        tried = moved(best, draw)
        # Another seed each time, so that no luck of one is fitted.
        error = comparison.error(replace(tried, seed=conditions.seed + step % 3))
        if error < least:
            best, least = tried, error
        progress(f"refining: step {step + 1} of {steps}, off by {math.exp(least) - 1:.0%}")
    return best


def moved(conditions: Conditions, draw: random.Random) -> Conditions:
    """With some of the constants multiplied by something."""
    machine: Machine = conditions.machine
    costs: Costs = conditions.costs
    for name in draw.sample((*MACHINE, "sigma", "costs"), draw.choice((1, 1, 2, 3))):
        factor = math.exp(draw.gauss(0, STEP))
        if name == "costs":
            scaled: dict[str, Any] = {
                each: times(getattr(costs, each), factor) for each in ECHO_COSTS
            }
            costs = replace(costs, **scaled)
        elif name == "sigma":
            machine = replace(machine, wake_idle_ns=wider(machine.wake_idle_ns, factor))
        else:
            changed: dict[str, Any] = {name: times(getattr(machine, name), factor)}
            machine = replace(machine, **changed)
    return replace(conditions, machine=machine, costs=costs)


def times(distribution: Distribution, factor: float) -> Distribution:
    """Everything about it is so many times as long."""
    if isinstance(distribution, float | int):
        return distribution * factor
    ((kind, numbers),) = distribution.items()
    if kind == "lognormal":
        median, sigma = numbers
        return {kind: [median * factor, sigma]}
    if isinstance(numbers, float | int):
        return {kind: numbers * factor}
    return {kind: [number * factor for number in numbers]}


def wider(distribution: Distribution, factor: float) -> Distribution:
    """About the same middle; one that does not vary begins to."""
    if isinstance(distribution, float | int):
        return {"lognormal": [distribution, 0.2 * factor]}
    ((kind, numbers),) = distribution.items()
    if kind == "lognormal":
        return {kind: [numbers[0], numbers[1] * factor]}
    if kind == "quantiles":
        middle = numbers[len(numbers) // 2]
        spread = [middle * (max(number, 1.0) / middle) ** factor for number in numbers]
        return {kind: spread}
    return distribution


def constants(conditions: Conditions) -> dict[str, Any]:
    """Those that refining moves."""
    machine, costs = asdict(conditions.machine), asdict(conditions.costs)
    return {each: machine[each] for each in MACHINE} | {each: costs[each] for each in ECHO_COSTS}


def _key(parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(parameters.items()))


def _log_ratio(found: float, wanted: float) -> float:
    """The logarithm of the ratio; a value of 0 counts as a thousandth of `wanted`."""
    return math.log(max(found, wanted / 1e3) / wanted)
