"""`headway simulate echo`: which threads, GILs and cores its rows are."""

from __future__ import annotations

import pytest
from made_conditions import TWO_CORES, choice, row_of, scenario_of, threads_of

from headway_lab.measured import EXPERIMENTS
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models.echo import SimulatedEcho
from headway_lab.simulated.models.experiment import Conditions

ECHO = SimulatedEcho()
PLAIN = {"policy": "stock", "switch_interval": 0.005, "mode": "threads", "cores": "free"}


def test_its_rows_are_those_of_the_measured_experiment() -> None:
    chosen = choice(policies=("stock", "deadline"), threads=(1, 2))
    simulated = [row.parameters for row in ECHO.rows(chosen, Machine())]
    assert simulated == [row.parameters for row in EXPERIMENTS["echo"].rows(chosen)]


@pytest.mark.parametrize(
    ("mode", "gils"),
    [
        ("threads", [0, 0]),
        ("processes", [1, 2]),
        ("interpreters", [1, 2]),
        ("free-threaded", [None, None]),
    ],
)
def test_what_computes_has_the_gil_of_where_it_runs(mode: str, gils: list[int | None]) -> None:
    scenario = scenario_of(ECHO, **{**PLAIN, "mode": mode, "cpu_threads": 2})
    assert [thread.gil for thread in threads_of(scenario, "compute-")] == gils
    (server,) = threads_of(scenario, "echo")
    assert server.gil == (None if mode == "free-threaded" else 0)
    (client,) = threads_of(scenario, "client")
    assert client.gil is None


def test_a_row_has_its_policy_and_its_interval() -> None:
    scenario = scenario_of(
        ECHO, **{**PLAIN, "policy": "beazley", "switch_interval": 0.1, "cpu_threads": 1}
    )
    (gil,) = scenario.gils
    assert (gil.policy, gil.switch_interval_ns) == ("beazley", 0.1 * 1e9)


@pytest.mark.parametrize(
    ("cores", "server", "client"),
    [("free", (), ()), ("one", (0,), (0,)), ("client elsewhere", (0,), (3,))],
)
def test_server_and_client_have_the_cores_of_their_row(
    cores: str, server: tuple[int, ...], client: tuple[int, ...]
) -> None:
    four = Conditions(Machine(cores=4), Costs())
    scenario = scenario_of(ECHO, four, **{**PLAIN, "cores": cores, "cpu_threads": 1})
    assert threads_of(scenario, "echo")[0].cores == server
    assert threads_of(scenario, "compute-")[0].cores == server
    assert threads_of(scenario, "client")[0].cores == client


def test_one_core_has_no_other_for_the_client() -> None:
    single = Conditions(Machine(cores=1), Costs())
    parameters = {**PLAIN, "cores": "client elsewhere", "cpu_threads": 1}
    assert row_of(ECHO, single, **parameters).left_out.startswith("there is one core")
    assert not row_of(ECHO, TWO_CORES, **parameters).left_out
