"""`echo` in virtual time: a thread that receives a byte and sends it back, its client, and the load
beside them, like `programs/echo_server.py` and its neighbours.

The server's thread drops the GIL for recv() and for send(), and takes it after each. The client is
a process of its own, so it does not wait for a GIL.
"""

from __future__ import annotations

from headway_lab.experiment import Choice, Measured, Row
from headway_lab.measured.echo import SECONDS, Echo
from headway_lab.measured.echo_value import (
    CLIENT_ELSEWHERE,
    FREE,
    FREE_THREADED,
    ONE,
    THREADS,
    Beside,
)
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models.experiment import (
    Conditions,
    Scene,
    Simulated,
    gils_of,
    own_gil,
    threads_named,
    total,
    window_s,
)
from headway_lab.simulated.samples import NS, gathered
from headway_lab.simulated.scenario import (
    Gil,
    Outcome,
    Scenario,
    Step,
    Thread,
    ask,
    begin,
    compute,
    end,
    receive,
    reply,
)

# The work has no end. This is only the length of a step.
WORK_NS = 1_000_000
CONNECTION = 0
ECHO, CLIENT, COMPUTE = "echo", "client", "compute-"


class SimulatedEcho(Simulated):
    experiment = Echo()
    scene = Scene(
        {
            "policy": "stock",
            "switch_interval": 0.005,
            "cpu_threads": 1,
            "mode": THREADS,
            "cores": FREE,
        },
        seconds=0.2,
    )

    def left_out(self, row: Row, machine: Machine) -> str:
        if row.parameters["cores"] == CLIENT_ELSEWHERE and machine.cores < 2:
            return "there is one core (--cores), and that takes two"
        return ""

    def scenario(self, row: Row, choice: Choice, conditions: Conditions) -> Scenario:
        named = row.parameters
        beside = Beside(
            row.setting, choice.setting(), named["cpu_threads"], named["mode"], named["cores"]
        )
        server_cores, client_cores = cores_of(named["cores"], conditions.machine.cores)
        gils = gils_of(row)
        gil = 0 if gils else None
        serving = Thread(ECHO, serve(conditions.costs), gil=gil, cores=server_cores)
        asking = Thread(CLIENT, ask_again(conditions.costs), cores=client_cores)
        computing = [
            Thread(
                f"{COMPUTE}{index}",
                [compute(WORK_NS)],
                gil=gil_beside(beside.mode, gils),
                cores=server_cores,
            )
            for index in range(beside.cpu_threads)
        ]
        seconds = choice.seconds or beside.seconds(SECONDS)
        threads = [serving, *computing, asking]
        return conditions.scenario(gils, threads, beside.warm_up_s, seconds)

    def measured(
        self, row: Row, scenario: Scenario, outcome: Outcome, conditions: Conditions
    ) -> Measured:
        (client,) = threads_named(outcome, scenario, CLIENT)
        computing = threads_named(outcome, scenario, COMPUTE)
        figures: dict[str, float] = {}
        if latencies := gathered([client["request_ns"]]):
            figures = {
                "p50_s": latencies.quantile_s(0.5),
                "p99_s": latencies.quantile_s(0.99),
                "max_s": latencies.quantile_s(1),
            }
        if computing:
            # A single thread would compute all the time.
            figures["work_share"] = total(computing, "computed_ns") / NS / window_s(scenario)
        if row.parameters["mode"] != FREE_THREADED:
            figures |= gil_shares(scenario, outcome)
        return Measured(client["requests"] / window_s(scenario), figures)


def serve(costs: Costs) -> list[Step]:
    return [
        receive(CONNECTION, costs.tcp_receive_ns),
        compute(costs.echo_server_ns),
        reply(costs.tcp_send_ns),
        compute(costs.echo_server_ns),
    ]


def ask_again(costs: Costs) -> list[Step]:
    """A client's steps: each request begins where the one before it ends."""
    return [
        begin(),
        ask(CONNECTION, costs.tcp_send_ns),
        compute(costs.tcp_receive_ns),
        compute(costs.echo_client_ns),
        end(),
    ]


def gil_beside(mode: str, gils: list[Gil]) -> int | None:
    """The GIL of the next thread that computes. If the thread has a GIL of its own, adds it to
    `gils`."""
    if mode == FREE_THREADED:
        return None
    if mode != THREADS:
        gils.append(own_gil())
    return 0 if mode == THREADS else len(gils) - 1


def cores_of(where: str, cores: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cores of the server and those of its client; an empty tuple means all cores."""
    if where == FREE:
        return (), ()
    return (0,), (0,) if where == ONE else (cores - 1,)


def gil_shares(scenario: Scenario, outcome: Outcome) -> dict[str, float]:
    """The shares of the time of the server's GIL. CPU-bound threads have what the echo thread and
    the handoffs leave."""
    window_ns = window_s(scenario) * NS
    (serving,) = threads_named(outcome, scenario, ECHO)
    io_held_share = serving["held_ns"] / window_ns
    handoff_share = outcome.gils[0]["handoff_ns"] / window_ns
    return {
        "io_held_share": io_held_share,
        "handoff_share": handoff_share,
        "left_share": 1 - io_held_share - handoff_share,
    }
