"""`headway simulate countdown`, `latency` and `wsgi`: which threads and GILs their rows are."""

from __future__ import annotations

from typing import Any

import pytest
from made_conditions import TWO_CORES, choice, scenario_of, threads_of

from headway_lab.measured import EXPERIMENTS
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models import SIMULATED
from headway_lab.simulated.models.countdown import SimulatedCountdown
from headway_lab.simulated.models.latency import SimulatedLatency
from headway_lab.simulated.models.wsgi import SimulatedWsgi, waits_of_takes
from headway_lab.simulated.samples import gathered

COUNTDOWN, LATENCY, WSGI = SimulatedCountdown(), SimulatedLatency(), SimulatedWsgi()
COUNTING = {
    "policy": "stock",
    "switch_interval": 0.00001,
    "mode": "threads",
    "timers": "default",
}
SERVING = {
    "workload": "fixed",
    "processes": 2,
    "threads": 5,
    "mode": "gil",
    "policy": "interval",
    "switch_interval": 0.005,
}


def steps_of(script: Any) -> list[str]:
    return [name for step in script for name in step]


@pytest.mark.parametrize("name", SIMULATED)
def test_rows_are_those_of_the_measured_experiment(name: str) -> None:
    simulated, measured = SIMULATED[name], EXPERIMENTS[name]
    found = [row.parameters for row in simulated.rows(choice(), Machine())]
    assert found == [row.parameters for row in measured.rows(choice())]


@pytest.mark.parametrize("name", SIMULATED)
def test_the_row_that_a_timeline_shows_is_one_of_them(name: str) -> None:
    simulated = SIMULATED[name]
    found = [row.parameters for row in simulated.rows(choice(), Machine())]
    assert simulated.scene.parameters in found


def test_what_is_counted_down_is_shared_out() -> None:
    alone = scenario_of(COUNTDOWN, **COUNTING, threads=1)
    shared = scenario_of(COUNTDOWN, **COUNTING, threads=4)
    assert [thread.once for thread in shared.threads] == [True] * 4
    shares_ns = [thread.script[0]["compute"] for thread in shared.threads]
    assert sum(shares_ns) == pytest.approx(alone.threads[0].script[0]["compute"])


def test_exact_timers_have_no_slack() -> None:
    exact = scenario_of(COUNTDOWN, **{**COUNTING, "timers": "exact"}, threads=2)
    default = scenario_of(COUNTDOWN, **COUNTING, threads=2)
    assert exact.machine["timer_slack_ns"] == 0
    assert default.machine["timer_slack_ns"] == TWO_CORES.machine.timer_slack_ns


@pytest.mark.parametrize(
    ("workload", "steps"),
    [("A", ["compute"]), ("B", ["compute", "call"]), ("C", ["compute", "system"])],
)
def test_a_workload_keeps_the_gil_or_drops_it(workload: str, steps: list[str]) -> None:
    scenario = scenario_of(
        LATENCY,
        policy="stock",
        switch_interval=0.005,
        workload=workload,
        cpu_threads=2,
    )
    computing = threads_of(scenario, "compute-")
    assert [steps_of(thread.script) for thread in computing] == [steps] * 2
    (ping,) = threads_of(scenario, "ping")
    # It takes the GIL once for each: the answer is a signal, which keeps it.
    assert steps_of(ping.script) == ["receive", "compute", "answer"]


def test_processes_have_a_gil_each_and_equal_shares_of_the_clients() -> None:
    scenario = scenario_of(WSGI, **SERVING)
    workers, clients = threads_of(scenario, "worker-"), threads_of(scenario, "client-")
    assert [thread.gil for thread in workers] == [0] * 5 + [1] * 5
    assert [thread.script[0]["receive"][0] for thread in workers] == [0] * 5 + [1] * 5
    asked = [thread.script[1]["ask"][0] for thread in clients]
    assert (asked.count(0), asked.count(1)) == (5, 5)
    assert len(scenario.gils) == 2


def test_threads_without_a_gil_have_none() -> None:
    free = {**SERVING, "mode": "free-threaded", "policy": "stock"}
    scenario = scenario_of(WSGI, **free)
    assert not scenario.gils
    assert {thread.gil for thread in scenario.threads} == {None}


@pytest.mark.parametrize(
    ("workload", "step"), [("fixed", "compute"), ("deadline", "compute_until")]
)
def test_a_page_computes_so_much_or_until_so_late(workload: str, step: str) -> None:
    scenario = scenario_of(WSGI, **{**SERVING, "workload": workload})
    script = threads_of(scenario, "worker-")[0].script
    assert {step: 3e6} in script
    assert {"sleep": 1e6} in script


def test_takes_that_did_not_wait_count_among_all() -> None:
    waits = gathered(
        [{"count": 100, "sum_ns": 100e6, "max_ns": 1e6, "quantiles_ns": [1e6] * 1_001}]
    )
    rarely = waits_of_takes(waits, takes=1_500)
    assert (rarely["gil_wait_p50_s"], rarely["gil_wait_p95_s"]) == (0, 1e-3)
    assert rarely["contended_gil_wait_p50_s"] == 1e-3
    never = waits_of_takes(None, takes=1_500)
    assert set(never.values()) == {0.0}
