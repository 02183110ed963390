"""Finds the hidden parameters of a recording, by simulating until the recording is reproduced.

Two things are hidden in a recording's times, because the kernel adds to them: how much of the cores
other programs use, and how long a request is really away. Other programs stretch the time with the
GIL beyond the CPU time. Requests that are away for longer wait less for the GIL (in a closed loop,
where all parts add up to the time between two requests of a client) or answer later (in an open
loop).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from headway_lab.simulated.fitting import Figures
from headway_lab.simulated.service import Service, figures_of

SECONDS = 1.5
SEEDS = 2
STEPS = 6
ROUNDS = 2
MOST_OTHERS = 3.0


@dataclass(frozen=True)
class Hidden:
    """The number of other programs' threads that compete for each core, and the share of a page's
    time apart from the GIL in which it is really away."""

    others: float
    away: float

    def put_into(self, service: Service) -> Service:
        return replace(
            service,
            page=replace(service.page, away_s=service.page.away_s * self.away),
            surroundings=replace(service.surroundings, others=self.others),
        )


def simulate(service: Service, seed: int, seconds: float) -> Figures:
    scenario = service.scenario(seed, seconds)
    return figures_of(scenario, scenario.run(), service.surroundings.demand)


def reproduce(service: Service, recorded: Figures, seed: int) -> Hidden:
    """Finds the hidden parameters. `service` is as recorded, with all its time apart from the GIL
    taken for time away."""
    is_open = service.surroundings.demand.is_open

    def mean(hidden: Hidden, figure: Callable[[Figures], float]) -> float:
        found = [
            figure(simulate(hidden.put_into(service), seed + n, SECONDS)) for n in range(SEEDS)
        ]
        return sum(found) / len(found)

    def excess(others: float, away: float) -> float:
        """The difference between simulation and recording; it grows with `away`."""
        hidden = Hidden(others, away)
        if is_open:
            return mean(hidden, lambda it: it.response_s) - recorded.response_s
        return recorded.wait_s - mean(hidden, lambda it: it.wait_s)

    def stretched(away: float, others: float) -> float:
        return mean(Hidden(others, away), lambda it: it.stretch) - recorded.stretch

    page = service.page
    least = page.least_away_s / page.away_s if page.away_s else 1.0
    others, away = 0.0, 1.0
    for _ in range(ROUNDS):
        others = root(partial(stretched, away), 0.0, MOST_OTHERS)
        away = root(partial(excess, others), least, 1.0)
    return Hidden(others, away)


def root(growing: Callable[[float], float], low: float, high: float) -> float:
    """The place between `low` and `high` at which the function is 0. If there is none, the end at
    which it is nearest to 0."""
    if growing(low) >= 0:
        return low
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if growing(middle) > 0 else (middle, high)
    return (low + high) / 2
