"""Finds what no recording tells, by simulating until the recording comes out.

Two things are hidden in a recording's times, since the kernel adds to them: how much of the cores
other programs use, and how long a request is really away. Others stretch the time with the GIL
beyond the CPU time; and requests that are away for longer wait less for it (in a closed loop, where
everything adds up to the time between two requests of a client) or answer later (in an open one).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headway.simulate.fitting import Figures, Page
from headway.simulate.service import Service, figures_of

SECONDS = 1.5
SEEDS = 2
STEPS = 5
ROUNDS = 2
MOST_OTHERS = 0.9


@dataclass(frozen=True)
class Hidden:
    """The share of each core that others use, and of a page's time apart that is spent away."""

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
    """`service` is as recorded, with all of its time apart taken for time away."""
    is_open = service.surroundings.demand.is_open

    def mean(hidden: Hidden, figure: Callable[[Figures], float]) -> float:
        found = [
            figure(simulate(hidden.put_into(service), seed + n, SECONDS)) for n in range(SEEDS)
        ]
        return sum(found) / len(found)

    def excess(away: float, others: float) -> float:
        """Grows with `away`."""
        hidden = Hidden(others, away)
        if is_open:
            return mean(hidden, lambda it: it.response_s) - recorded.response_s
        return recorded.wait_s - mean(hidden, lambda it: it.wait_s)

    def stretched(others: float, away: float) -> float:
        return mean(Hidden(others, away), lambda it: it.stretch) - recorded.stretch

    hidden = Hidden(0.0, 1.0)
    for _ in range(ROUNDS):
        others = root(lambda it: stretched(it, hidden.away), MOST_OTHERS)  # noqa: B023
        away = root(lambda it: excess(it, others), 1.0)  # noqa: B023
        hidden = Hidden(others, away)
    return hidden


def root(growing: Callable[[float], float], most: float) -> float:
    """Where it is 0, between 0 and `most`; at the end where it is nearest, if nowhere."""
    low, high = 0.0, most
    if growing(low) >= 0:
        return low
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if growing(middle) > 0 else (middle, high)
    return (low + high) / 2


def perturbed(hidden: Hidden, page: Page, other: Page) -> Hidden:
    """As it would have come out of another sample, of which `other` is the page."""
    return hidden if page == other else Hidden(hidden.others, hidden.away)
