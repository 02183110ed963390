"""`latency` in virtual time: a thread that receives pings, their sender, and the threads that
compute beside it, like `programs/ping_server.py` and its neighbours.

A ping is sent a random time after the previous one was received. The receiver reports each ping to
the sender by a signal, which keeps the GIL, so the thread waits for the GIL once for each ping.
"""

from __future__ import annotations

from headway.output.results import Parameters
from headway.programs.processes import ProgramError
from headway_lab.experiment import Choice, Measured, Row
from headway_lab.measured.ccbench import THREADS
from headway_lab.measured.latency import VALUE, Latency, long_enough_s
from headway_lab.measured.pings import MS, WARM_UP_S, figures_of
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.models.experiment import (
    Conditions,
    Scene,
    Simulated,
    gils_of,
    threads_named,
)
from headway_lab.simulated.samples import NS, gathered
from headway_lab.simulated.scenario import (
    Outcome,
    Scenario,
    Step,
    Thread,
    answer,
    ask,
    call,
    compute,
    receive,
    sleep,
    system,
)

SOCKET = 0
MAX_PAUSE_NS = 2_000_000
PING, CLIENT, COMPUTE = "ping", "client", "compute-"


class SimulatedLatency(Simulated):
    experiment = Latency()
    scene = Scene(
        {
            "policy": "stock",
            "switch_interval": 0.005,
            "mode": THREADS,
            "workload": "A",
            "cpu_threads": 1,
        },
        seconds=0.2,
    )

    def calibration(self, choice: Choice, conditions: Conditions) -> Parameters:
        workloads = choice.workloads or Latency.workloads
        calls_ms = {name: call_ns(name, conditions.costs) / NS * MS for name in workloads}
        return {**super().calibration(choice, conditions), "call_ms": calls_ms}

    def scenario(self, row: Row, choice: Choice, conditions: Conditions) -> Scenario:
        costs = conditions.costs
        gils = gils_of(row)
        gil = 0 if gils else None
        work = work_of(row.parameters["workload"], costs)
        threads = [
            Thread(PING, receive_pings(costs), gil=gil),
            *(
                Thread(f"{COMPUTE}{index}", work, gil=gil)
                for index in range(row.parameters["cpu_threads"])
            ),
            Thread(CLIENT, send_pings(costs)),
        ]
        return conditions.scenario(gils, threads, WARM_UP_S, choice.seconds or long_enough_s(row))

    def measured(
        self, row: Row, scenario: Scenario, outcome: Outcome, conditions: Conditions
    ) -> Measured:
        (client,) = threads_named(outcome, scenario, CLIENT)
        waits = gathered([client["answer_ns"]])
        if waits is None:
            raise ProgramError("no ping was received")
        waits_s = waits.spread_s()
        figures = figures_of(waits_s, row.parameters.get("switch_interval"))
        figures |= {"pings": float(waits.count), "mean_ms": waits.mean_s * MS}
        return Measured(figures[VALUE], figures, waits_s)


def receive_pings(costs: Costs) -> list[Step]:
    return [
        receive(SOCKET, costs.udp_receive_ns),
        compute(costs.ping_ns),
        answer(costs.kill_ns),
    ]


def send_pings(costs: Costs) -> list[Step]:
    return [sleep({"uniform": [0, MAX_PAUSE_NS]}), ask(SOCKET, costs.udp_send_ns)]


def call_ns(workload: str, costs: Costs) -> float:
    return {
        "A": costs.pi_digits_ns,
        "B": costs.find_definitions_ns,
        "C": costs.bz2_ns,
        "sha1": costs.sha1_ns,
        "zlib": costs.zlib_ns,
    }[workload]


def work_of(workload: str, costs: Costs) -> list[Step]:
    """The steps of a workload: A is Python, B keeps the GIL, and the others drop it."""
    ns = call_ns(workload, costs)
    if workload == "A":
        return [compute(ns)]
    return [compute(costs.between_calls_ns), call(ns) if workload == "B" else system(ns)]
