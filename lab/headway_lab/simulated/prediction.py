"""`headway simulate --from RECORDING`: the effect of another switch interval, policy or shape on a
recorded service, with an interval for each figure.

A prediction is the measured figure, times the simulated effect of the change. Its interval covers
the scatter of the recording (each simulation's page comes from a resample of the reports), the
effect of seeds, the distribution of connections over processes, the distance of the simulations
from the recording itself, and MODEL_ERROR. If the recording leaves open whether the clock ends the
work of a request, the interval covers both cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median_high
from typing import NamedTuple

from headway_lab.simulated.costs import Costs
from headway_lab.simulated.fitting import (
    BUSY,
    Demand,
    Figures,
    Lean,
    Page,
    busy_of,
    demand_of,
    figures_of,
    lean_of,
    page_of,
)
from headway_lab.simulated.intervals import Interval, covered, hull, widened
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.recording import Recording, total, unfit
from headway_lab.simulated.service import Configuration, Service, Surroundings
from headway_lab.simulated.validation import Hidden, reproduce, simulate

# The duration of a simulation's window.
SECONDS = 2.0
DEFAULT_VALUES = 16
# With a larger misfit, the simulated service differs too much from the recorded one.
MOST_MISFIT = 0.5
PREDICTED = ("throughput", "response_s", "wait_s", "take_wait_p95_s")


@dataclass(frozen=True)
class Prediction:
    """The prediction for a configuration, by the names of PREDICTED."""

    configuration: Configuration
    intervals: dict[str, Interval]


@dataclass(frozen=True)
class Predicted:
    """The measured figures, how the requests end, the figures that a simulation of the recording
    gives, and the predictions for the other configurations."""

    recording: Recording
    demand: Demand
    measured: Figures
    lean: Lean
    check: Prediction
    misfit: float
    predictions: list[Prediction]


class Draw(NamedTuple):
    """One sample of the recording's reports, and the seed that goes with it."""

    page: Page
    seed: int


def predict(
    path: str,
    recording: Recording,
    asked: Sequence[Configuration],
    machine: Machine,
    costs: Costs,
    seed: int = 1,
    values: int = DEFAULT_VALUES,
    progress: Callable[[str], None] = lambda text: None,
) -> Predicted:
    """Raises Unfit if the recording cannot support a prediction."""
    demand = demand_of(recording)
    check_demand(path, recording, demand)
    measured = figures_of([worker.record for worker in recording.workers], demand)
    draws, lean = drawn(recording, seed, values)
    recorded = configuration_of(recording)
    surroundings = Surroundings(machine, costs, demand, 0.0)
    ends = (lean.value > 0,) if lean.is_known else (False, True)
    models = []
    for ends_by_clock in ends:
        progress("fitting")
        service = Service(draws[0].page, ends_by_clock, recorded, surroundings)
        models.append(Model(service, reproduce(service, measured, seed), draws, measured))
    check, misfit = checked(recorded, models, measured)
    if misfit > MOST_MISFIT:
        found = check.intervals["throughput"].middle
        unfit(
            path,
            f"simulated as recorded it gives {found:.0f} requests/s, and {measured.throughput:.0f} "
            "were measured; what makes the difference is not in it",
        )
    predictions = []
    for configuration in asked:
        progress(said(configuration))
        of_models = [model.predict(configuration) for model in models]
        intervals = {name: hull([each[name] for each in of_models]) for name in PREDICTED}
        predictions.append(Prediction(configuration, intervals))
    return Predicted(recording, demand, measured, lean, check, misfit, predictions)


def check_demand(path: str, recording: Recording, demand: Demand) -> None:
    """A saturated server shows its capacity, and not the demand of its clients."""
    busy = busy_of(recording)
    if demand.is_open and busy > BUSY:
        unfit(
            path,
            f"its threads were in requests for {busy:.0%} of the time while new connections came, "
            "so more was asked for than was served, and how much more is not known",
        )


def configuration_of(recording: Recording) -> Configuration:
    return Configuration(
        len(recording.workers),
        recording.threads,
        recording.policy,
        recording.switch_interval_s,
        recording.cores,
    )


def alternatives(
    recorded: Configuration,
    policies: Sequence[str],
    switch_intervals_s: Sequence[float],
    shapes: Sequence[tuple[int, int]],
    cores: int | None,
) -> list[Configuration]:
    """All combinations of the given settings. A setting without a value stays as recorded."""
    found = [
        Configuration(processes, threads, policy, interval_s, cores or recorded.cores)
        for (processes, threads), policy, interval_s in product(
            shapes or [(recorded.processes, recorded.threads)],
            policies or [recorded.policy],
            switch_intervals_s or [recorded.switch_interval_s],
        )
    ]
    return [each for each in dict.fromkeys(found) if each != recorded]


def drawn(recording: Recording, seed: int, values: int) -> tuple[list[Draw], Lean]:
    """The recording itself, then resamples of its reports with the same number of reports of each
    process."""
    choose = random.Random(seed)
    whole = total(tick for worker in recording.workers for tick in worker.ticks)
    draws = [Draw(page_of(whole), seed)]
    samples = [[worker.record for worker in recording.workers]]
    for number in range(1, values):
        places = [
            choose.choices(range(len(worker.ticks)), k=len(worker.ticks))
            for worker in recording.workers
        ]
        drawn_ticks = [
            [worker.ticks[place] for place in some]
            for worker, some in zip(recording.workers, places, strict=True)
        ]
        samples.append([total(ticks) for ticks in drawn_ticks])
        page = page_of(total(tick for ticks in drawn_ticks for tick in ticks))
        draws.append(Draw(page, seed + number))
    return draws, lean_of(samples)


class Model:
    """A model of the requests whose work ends in one of the two ways, fitted to the recording."""

    def __init__(
        self, service: Service, hidden: Hidden, draws: Sequence[Draw], measured: Figures
    ) -> None:
        self._service = service
        self._hidden = hidden
        self._draws = draws
        self._measured = measured
        demand = service.surroundings.demand
        self.recorded = [self._simulate(draw, service.configuration, demand) for draw in draws]

    def predict(self, configuration: Configuration) -> dict[str, Interval]:
        """The interval includes the simulated figures, and the measured figures scaled by the
        simulated change, so a misfit widens it."""
        found = []
        for draw, before in zip(self._draws, self.recorded, strict=True):
            demand = fallen(self._service.surroundings.demand, configuration.processes, draw.seed)
            found.append((before, self._simulate(draw, configuration, demand)))
        return {name: self._interval(name, found) for name in PREDICTED}

    def _simulate(self, draw: Draw, configuration: Configuration, demand: Demand) -> Figures:
        service = replace(
            self._service,
            page=draw.page,
            configuration=configuration,
            surroundings=replace(self._service.surroundings, demand=demand),
        )
        return simulate(self._hidden.put_into(service), draw.seed, SECONDS)

    def _interval(self, name: str, found: Sequence[tuple[Figures, Figures]]) -> Interval:
        usual = median_high([getattr(before, name) for before, _ in found])
        after = sorted(getattr(each, name) for _, each in found)
        if not usual:
            return widened(Interval(*covered(after)))
        by = getattr(self._measured, name) / usual
        low, middle, high = covered([each * by for each in after])
        direct = median_high(after)
        return widened(Interval(min(low, direct), middle, max(high, direct)))


def fallen(demand: Demand, processes: int, seed: int) -> Demand:
    """The same clients, with their connections distributed over the processes at random, as after
    another start."""
    if demand.is_open:
        each = max(1, round(demand.total / processes))
        clients = (each,) * processes
        return Demand(clients, demand.think_s * sum(clients) / demand.total, True)
    choose = random.Random(seed)
    counts = [0] * processes
    for _ in range(demand.total):
        counts[choose.randrange(processes)] += 1
    return demand._replace(clients=tuple(counts))


def checked(
    recorded: Configuration, models: Sequence[Model], measured: Figures
) -> tuple[Prediction, float]:
    """The figures that simulations of the recording give, and the larger of the errors of
    throughput and response."""
    intervals = {}
    for name in PREDICTED:
        found = [covered(sorted(getattr(each, name) for each in m.recorded)) for m in models]
        intervals[name] = hull([Interval(*each) for each in found])
    misfit = max(
        abs(intervals[name].middle / getattr(measured, name) - 1)
        for name in ("throughput", "response_s")
    )
    return Prediction(recorded, intervals), misfit


def said(configuration: Configuration) -> str:
    interval = f"{configuration.switch_interval_s * 1e3:g} ms"
    return f"{configuration.shape}, {interval}, {configuration.policy}"
