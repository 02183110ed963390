"""The published effects in simulated experiments, in virtual time, by rows of their own."""

from __future__ import annotations

from typing import Any

from made_conditions import TWO_CORES, choice, row_of

from headway_lab.experiment import Measured
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models.countdown import SimulatedCountdown
from headway_lab.simulated.models.echo import SimulatedEcho
from headway_lab.simulated.models.experiment import Conditions, Simulated
from headway_lab.simulated.models.latency import SimulatedLatency
from headway_lab.simulated.models.wsgi import SimulatedWsgi

ECHO = {"policy": "stock", "switch_interval": 0.005, "mode": "threads", "cores": "free"}
COUNTING = {"policy": "stock", "switch_interval": 0.005, "mode": "threads", "timers": "default"}
PINGS = {"policy": "stock", "switch_interval": 0.005, "mode": "threads", "cpu_threads": 1}
PAGES = {"processes": 2, "threads": 5, "mode": "gil", "policy": "interval"}
TWELVE_CORES = Conditions(Machine(cores=12), Costs())


def value_of(
    simulated: Simulated, conditions: Conditions = TWO_CORES, **parameters: Any
) -> Measured:
    row = row_of(simulated, conditions, **parameters)
    scenario = simulated.scenario(row, choice(), conditions)
    return simulated.measured(row, scenario, scenario.run(), conditions)


def test_a_thread_that_computes_costs_an_echo_server_most_of_its_requests() -> None:
    alone = value_of(SimulatedEcho(), **ECHO, cpu_threads=0)
    beside = value_of(SimulatedEcho(), **ECHO, cpu_threads=1)
    process = value_of(SimulatedEcho(), **{**ECHO, "mode": "processes"}, cpu_threads=1)
    assert beside.value < alone.value / 10
    assert process.value > alone.value / 2
    # It waits for a switch interval, and the one that computes has the GIL meanwhile.
    assert beside.figures["p99_s"] > 0.005
    assert beside.figures["work_share"] > 0.9
    assert beside.figures["left_share"] > 0.9


def test_policies_that_let_io_go_first_cure_the_convoy() -> None:
    stock = value_of(SimulatedEcho(), **ECHO, cpu_threads=1)
    for policy in ("requests", "beazley", "priority", "deadline"):
        cured = value_of(SimulatedEcho(), **{**ECHO, "policy": policy}, cpu_threads=1)
        assert cured.value > 10 * stock.value, policy


def test_another_seed_brings_another_value_and_the_same_the_same() -> None:
    row = {**ECHO, "switch_interval": 0.0001, "cpu_threads": 2}
    conditions = [
        Conditions(Machine(wake_idle_ns={"exponential": 3e4}), Costs(), seed) for seed in (1, 1, 2)
    ]
    first, again, other = (value_of(SimulatedEcho(), each, **row) for each in conditions)
    assert first == again
    assert first != other


def test_threads_share_out_work_and_gain_nothing_with_a_gil() -> None:
    one, four = (value_of(SimulatedCountdown(), **COUNTING, threads=count) for count in (1, 4))
    assert 0.95 < four.value / one.value < 1.2
    free = {**COUNTING, "mode": "free-threaded"}
    two = value_of(SimulatedCountdown(), **free, threads=2)
    assert 0.45 < two.value / one.value < 0.55


def test_threads_that_hardly_sleep_leave_the_holder_its_core() -> None:
    """Timers of a microsecond end before a core has been switched."""
    exact = {**COUNTING, "switch_interval": 0.000001, "timers": "exact"}
    one, eight = (value_of(SimulatedCountdown(), **exact, threads=count) for count in (1, 8))
    assert one.value < eight.value < 100 * one.value


def test_a_ping_waits_for_a_switch_interval_or_under_a_policy_for_a_call() -> None:
    stock = value_of(SimulatedLatency(), **PINGS, workload="A")
    assert 5 <= stock.figures["p50_ms"] < 7
    swift = value_of(SimulatedLatency(), **{**PINGS, "policy": "priority"}, workload="A")
    assert swift.value < 1
    call_ms = Costs().find_definitions_ns / 1e6
    bound = value_of(SimulatedLatency(), **{**PINGS, "policy": "priority"}, workload="B")
    assert call_ms / 10 < bound.value < 1.5 * call_ms


def test_a_small_interval_gains_where_the_clock_ends_the_work_and_only_there() -> None:
    for workload, gains in (("deadline", True), ("fixed", False)):
        usual, small = (
            value_of(
                SimulatedWsgi(), TWELVE_CORES, **PAGES, workload=workload, switch_interval=interval
            )
            for interval in (0.005, 0.0001)
        )
        assert (small.value > 1.5 * usual.value) is gains, workload
        assert usual.figures["takes_per_s"] > usual.value / 60
        assert usual.figures["cpu_per_process"] < 1.01
