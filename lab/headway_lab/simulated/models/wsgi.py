"""`wsgi` in virtual time: processes x threads that serve a page of 3 ms, and ten clients.

The threads are those of `headway serve`: each takes the GIL once for a request, and reads and
writes without it. Connections are divided evenly between the processes and stay there. The clients
are threads without a GIL. The real load generator has them all in one thread, which it does not
keep busy. The memory of a process is not simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headway.programs.processes import ProgramError
from headway_lab.experiment import Choice, Measured, Row
from headway_lab.histogram import histogram
from headway_lab.measured.wsgi.experiment import FIXED_WORK_S, SECONDS, WARM_UP_S, Wsgi
from headway_lab.measured.wsgi.load import CONNECTIONS
from headway_lab.measured.wsgi.reports import PERCENTILES, SAMPLES, bumps
from headway_lab.measured.wsgi.rows import DEADLINE, FREE_THREADED, GIL, compares_builds
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.models.experiment import (
    Conditions,
    Scene,
    Simulated,
    gil_of,
    threads_named,
    total,
    window_s,
)
from headway_lab.simulated.samples import NS, Samples, gathered
from headway_lab.simulated.scenario import (
    Outcome,
    Scenario,
    Step,
    Thread,
    answer,
    ask,
    begin,
    compute,
    compute_until,
    end,
    receive,
    sleep,
)

WORKER, CLIENT = "worker-", "client-"
WORK_NS = FIXED_WORK_S * NS
WAITING_NS = 1_000_000
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
assert tuple(SHARES) == PERCENTILES


class SimulatedWsgi(Simulated):
    experiment = Wsgi()
    scene = Scene(
        {
            "server": "headway",
            "workload": "fixed",
            "processes": 2,
            "threads": 5,
            "mode": GIL,
            "policy": "interval",
            "switch_interval": 0.005,
        },
        seconds=0.2,
    )

    def scenario(self, row: Row, choice: Choice, conditions: Conditions) -> Scenario:
        processes, threads = row.parameters["processes"], row.parameters["threads"]
        costs = conditions.costs
        free_threaded = row.parameters["mode"] == FREE_THREADED
        workers = [
            Thread(
                f"{WORKER}{process}.{thread}",
                serve(process, row.parameters["workload"], costs),
                gil=None if free_threaded else process,
            )
            for process in range(processes)
            for thread in range(threads)
        ]
        clients = [
            Thread(f"{CLIENT}{index}", ask_again(index % processes, costs))
            for index in range(CONNECTIONS)
        ]
        gils = [] if free_threaded else [gil_of(row)] * processes
        seconds = choice.seconds or SECONDS
        return conditions.scenario(gils, [*workers, *clients], WARM_UP_S, seconds)

    def measured(
        self, row: Row, scenario: Scenario, outcome: Outcome, conditions: Conditions
    ) -> Measured:
        seconds = window_s(scenario)
        requests = total(threads_named(outcome, scenario, CLIENT), "requests")
        figures = {
            **times_of_requests(scenario, outcome),
            **processor_time(scenario, outcome, row.parameters["processes"]),
            "errors": 0.0,
        }
        if compares_builds(row.parameters):
            figures["work_s"] = FIXED_WORK_S
        waits_s: list[float] = []
        if row.parameters["mode"] != FREE_THREADED:
            workers = threads_named(outcome, scenario, WORKER)
            takes = total(workers, "takes")
            waits = gathered(worker["wait_ns"] for worker in workers)
            gil_s = seconds * len(outcome.gils)
            waits_s = waits.spread_s() if waits else []
            figures |= {
                **waits_of_takes(waits, takes),
                **bumps(histogram(waits_s), row.parameters["switch_interval"]),
                "gil_held_share": total(outcome.gils, "held_ns") / NS / gil_s,
                "gil_handoff_share": total(outcome.gils, "handoff_ns") / NS / gil_s,
                "forced_drops_per_s": total(workers, "forced_drops") / seconds,
                "takes_per_s": takes / seconds,
            }
        return Measured(60 * requests / seconds, figures, waits_s[:: len(waits_s) // SAMPLES or 1])


def times_of_requests(scenario: Scenario, outcome: Outcome) -> dict[str, float]:
    """The response time, from when a client sends the request until a worker has answered."""
    workers = threads_named(outcome, scenario, WORKER)
    clients = threads_named(outcome, scenario, CLIENT)
    responses = of_some(client["answer_ns"] for client in clients)
    applications = of_some(worker["request_ns"] for worker in workers)
    latencies = of_some(client["request_ns"] for client in clients)
    return {
        "response_mean_s": responses.mean_s,
        **percentiles("response", responses),
        "application_mean_s": applications.mean_s,
        **percentiles("application", applications),
        "client_p50_s": latencies.quantile_s(0.5),
        "client_p99_s": latencies.quantile_s(0.99),
    }


def of_some(found: Iterable[Mapping[str, Any]]) -> Samples:
    samples = gathered(found)
    if samples is None:
        raise ProgramError("no request was answered")
    return samples


def processor_time(scenario: Scenario, outcome: Outcome, processes: int) -> dict[str, float]:
    """The processor time, in cores."""
    used, clients = (
        total(threads_named(outcome, scenario, prefix), "cpu_ns") / NS / window_s(scenario)
        for prefix in (WORKER, CLIENT)
    )
    return {
        "cpu_per_process": used / processes,
        "cpu_total": used,
        "client_cpu_share": clients,
    }


def serve(process: int, workload: str, costs: Costs) -> list[Step]:
    """The steps of a worker. Each process has a channel. Writing the response counts as time
    without the GIL."""
    work = compute_until(WORK_NS) if workload == DEADLINE else compute(WORK_NS)
    return [
        receive(process, costs.http_ns),
        begin(),
        compute(costs.http_python_ns),
        work,
        sleep(WAITING_NS),
        compute(costs.http_python_ns),
        end(),
        answer(0),
    ]


def ask_again(process: int, costs: Costs) -> list[Step]:
    return [begin(), ask(process, costs.http_client_ns), end()]


def percentiles(name: str, found: Samples | None) -> dict[str, float]:
    """The percentiles of samples; zero without samples."""
    return {
        f"{name}_{percentile}_s": found.quantile_s(share) if found else 0.0
        for percentile, share in SHARES.items()
    }


def waits_of_takes(waits: Samples | None, takes: float) -> dict[str, float]:
    """The waits of takes that had to wait, and of all takes, many of which did not wait."""
    figures = percentiles("contended_gil_wait", waits)
    for percentile, share in SHARES.items():
        among_waits = 1 - (1 - share) * takes / waits.count if waits else 0.0
        wait_s = waits.quantile_s(among_waits) if waits and among_waits > 0 else 0.0
        figures[f"gil_wait_{percentile}_s"] = wait_s
    return figures
