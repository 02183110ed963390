"""A server as a scenario: worker threads that share GILs, and clients that send requests.

This module does not know recordings, how a page's times were derived, or the use of an outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from headway_lab.simulated.costs import Costs
from headway_lab.simulated.fitting import NS, Demand, Figures, Page
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models.experiment import threads_named, total, window_s
from headway_lab.simulated.samples import gathered
from headway_lab.simulated.scenario import (
    Gil,
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

WORKER, CLIENT, OTHER = "worker-", "client-", "other-"
WARM_UP_S = 0.3
# The time for which a thread of another program runs on a core.
OTHERS_NS = 1_000_000
MOST_SHARE = 0.95
LEAST_WORK_NS = 1_000


class Configuration(NamedTuple):
    processes: int
    threads: int
    policy: str
    switch_interval_s: float
    cores: int

    @property
    def shape(self) -> str:
        return f"{self.processes}x{self.threads}"


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of the server: its clients, the cost of a request beyond its page, and the
    average number of other programs' threads per core that want to run."""

    machine: Machine
    costs: Costs
    demand: Demand
    others: float


@dataclass(frozen=True)
class Service:
    """A page under a configuration. `ends_by_clock` is true if the clock ends its work."""

    page: Page
    ends_by_clock: bool
    configuration: Configuration
    surroundings: Surroundings

    def scenario(self, seed: int, seconds: float) -> Scenario:
        threads, configuration = self.configuration.threads, self.configuration
        demand = self.surroundings.demand
        workers = [
            Thread(f"{WORKER}{process}.{thread}", self._serve(process), gil=process)
            for process in range(configuration.processes)
            for thread in range(threads)
        ]
        clients = [
            Thread(f"{CLIENT}{process}.{client}", self._ask(process))
            for process, count in enumerate(demand.clients)
            for client in range(count)
        ]
        gil = Gil(configuration.policy, configuration.switch_interval_s * NS)
        machine = replace(self.surroundings.machine, cores=configuration.cores)
        return Scenario(
            vars(machine),
            [gil] * configuration.processes,
            [*workers, *clients, *self._others()],
            begin_ns=WARM_UP_S * NS,
            end_ns=(WARM_UP_S + seconds) * NS,
            seed=seed,
        )

    def _serve(self, process: int) -> list[Step]:
        page = self.page
        first, *more = page.shares
        http_ns = self.surroundings.costs.http_ns
        work = (
            compute_until(spread(page.until_s))
            if self.ends_by_clock
            else compute(spread(page.work_s, first))
        )
        script = [receive(process, http_ns), begin(), work]
        for share in more:
            script += [sleep(page.away_s * NS), compute(spread(page.work_s, share))]
        return [*script, end(), answer(0)]

    def _ask(self, process: int) -> list[Step]:
        demand = self.surroundings.demand
        think = [sleep({"exponential": demand.think_s * NS})] if demand.think_s else []
        return [*think, begin(), ask(process, self.surroundings.costs.http_client_ns), end()]

    def _others(self) -> list[Thread]:
        """One thread on each core for the first whole share, two for the second, and so on."""
        left, threads = self.surroundings.others, []
        while left > 0:
            share = min(MOST_SHARE, left)
            away_ns = OTHERS_NS * (1 - share) / share
            script = [compute({"exponential": OTHERS_NS}), sleep({"exponential": away_ns})]
            threads += [Thread(OTHER, script) for _ in range(self.configuration.cores)]
            left -= 1
        return threads


def spread(times_s: tuple[float, ...], share: float = 1.0) -> dict[str, Any]:
    return {"quantiles": [max(LEAST_WORK_NS, each * share * NS) for each in times_s]}


def figures_of(scenario: Scenario, outcome: Outcome, demand: Demand) -> Figures:
    """The same figures as `fitting.figures_of` computes from a recording."""
    seconds = window_s(scenario)
    workers = threads_named(outcome, scenario, WORKER)
    clients = threads_named(outcome, scenario, CLIENT)
    asked, served = total(clients, "requests"), total(workers, "requests")
    responses = gathered(client["request_ns"] for client in clients)
    waits = gathered(worker["wait_ns"] for worker in workers)
    if not asked or not served or responses is None:
        return Figures(0.0, float("inf"), 0.0, 0.0, 1.0)
    held_s, cpu_s = total(workers, "held_ns") / NS, total(workers, "cpu_ns") / NS
    waited_s = waits.sum_s if waits else 0.0
    return Figures(
        asked / seconds,
        responses.mean_s if demand.is_open else demand.total * seconds / asked - demand.think_s,
        waited_s / served,
        waits.quantile_s(0.95) if waits else 0.0,
        held_s / cpu_s,
    )
