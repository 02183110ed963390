"""The conditions of simulated rows in tests, and a choice of all rows."""

from __future__ import annotations

from typing import Any

from headway_lab.commands.simulate import INTERPRETER
from headway_lab.experiment import Choice, Row
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models.experiment import Conditions, Simulated
from headway_lab.simulated.scenario import Scenario, Thread

TWO_CORES = Conditions(Machine(cores=2), Costs())


def choice(**chosen: Any) -> Choice:
    free_threaded = INTERPRETER._replace(free_threading=True)
    return Choice(interpreter=INTERPRETER, free_threaded=free_threaded, **chosen)


def row_of(simulated: Simulated, conditions: Conditions, **parameters: Any) -> Row:
    """The only row, among those that are chosen by them, that has these parameters."""
    chosen: dict[str, Any] = {}
    if "policy" in parameters:
        chosen["policies"] = (parameters["policy"],)
    rows = simulated.rows(choice(**chosen), conditions.machine)
    (found,) = [each for each in rows if parameters.items() <= each.parameters.items()]
    return found


def scenario_of(
    simulated: Simulated, conditions: Conditions = TWO_CORES, **parameters: Any
) -> Scenario:
    row = row_of(simulated, conditions, **parameters)
    assert not row.left_out
    return simulated.scenario(row, choice(), conditions)


def threads_of(scenario: Scenario, prefix: str) -> list[Thread]:
    return [thread for thread in scenario.threads if thread.name.startswith(prefix)]
