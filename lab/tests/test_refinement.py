"""bench/refinement.py: constants are moved until the simulated rows match the measured ones."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headway.output.metadata import STOCK
from headway_lab.commands.simulate import INTERPRETER
from headway_lab.experiment import Choice
from headway_lab.measured.echo_value import FREE, THREADS
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models.echo import SimulatedEcho
from headway_lab.simulated.models.experiment import Conditions

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
from refinement import (
    MACHINE,
    Comparison,
    Observed,
    constants,
    moved,
    refine,
    times,
    wider,
)

INTERVALS_S = (0.0001, 0.00001)
CHOICE = Choice(
    interpreter=INTERPRETER,
    policies=(STOCK,),
    switch_intervals_s=INTERVALS_S,
    threads=(0, 1),
    modes=(THREADS,),
    seconds=0.02,
)


def observed(conditions: Conditions) -> list[Observed]:
    """The rows that a measurement on such a machine would give."""
    rows = [
        {
            "policy": STOCK,
            "switch_interval": interval_s,
            "cpu_threads": threads,
            "mode": THREADS,
            "cores": FREE,
        }
        for interval_s in INTERVALS_S
        for threads in (0, 1)
    ]
    blank = [Observed(row, 1.0) for row in rows]
    values = Comparison(SimulatedEcho(), CHOICE, blank, 3).simulate(conditions)
    return [Observed(row, value) for row, value in zip(rows, values, strict=True)]


def test_another_machine_is_come_closer_to() -> None:
    shipped = Conditions(Machine(), Costs())
    slow = replace(Machine(), wake_idle_ns=90_000, switch_ns=9_000)
    comparison = Comparison(SimulatedEcho(), CHOICE, observed(replace(shipped, machine=slow)))
    told: list[str] = []
    refined = refine(comparison, shipped, told.append, steps=60)
    assert comparison.error(refined) < comparison.error(shipped) / 2
    assert told[-1].startswith("refining: step 60 of 60, off by ")
    first, again = (refine(comparison, shipped, told.append, steps=20) for _ in range(2))
    assert first == again


def test_what_comes_out_as_it_did_stays() -> None:
    shipped = Conditions(Machine(), Costs())
    rows = observed(shipped)
    assert Comparison(SimulatedEcho(), CHOICE, rows, 3).error(shipped) == 0
    assert set(constants(shipped)) >= {*MACHINE, "tcp_send_ns"}


def test_steps_move_some_constants_and_no_others() -> None:
    shipped = Conditions(Machine(), Costs())
    draw = random.Random(1)
    changed = set()
    for _ in range(60):
        step = moved(shipped, draw)
        before, after = constants(shipped), constants(step)
        changed |= {name for name in before if before[name] != after[name]}
        assert step.machine.cores == shipped.machine.cores
        assert step.costs.decrement_ns == shipped.costs.decrement_ns
    assert changed == set(constants(shipped))


@pytest.mark.parametrize(
    ("distribution", "doubled", "wide"),
    [
        (10.0, 20.0, {"lognormal": [10.0, 0.4]}),
        ({"lognormal": [10, 0.5]}, {"lognormal": [20, 0.5]}, {"lognormal": [10, 1.0]}),
        ({"exponential": 10}, {"exponential": 20}, {"exponential": 10}),
        ({"uniform": [1, 3]}, {"uniform": [2, 6]}, {"uniform": [1, 3]}),
        ({"quantiles": [5, 10, 20]}, {"quantiles": [10, 20, 40]}, {"quantiles": [2.5, 10, 40]}),
    ],
)
def test_distributions_are_stretched_and_widened(
    distribution: object, doubled: object, wide: object
) -> None:
    assert times(distribution, 2) == doubled  # type: ignore[arg-type]
    assert wider(distribution, 2) == wide  # type: ignore[arg-type]
