"""Experiments whose blocks are drawn by chance instead of measured."""

import random
from collections.abc import Callable, Mapping

from headway.tune.goals import TIME, Figures, Goal
from headway.tune.setting import Setting
from headway.tune.trials import Measured, Trials

CONTROL = Setting("interval", 0.005)
PRIORITY = Setting("priority", 0.005)
DEADLINE = Setting("deadline", 0.005)

Noise = Callable[[random.Random], float]


def noisy(chance: random.Random) -> float:
    """The noise of a p99: skewed, with a block in ten that something else disturbs."""
    factor = chance.lognormvariate(0, 0.15)
    return factor * (chance.uniform(1, 3) if chance.random() < 0.1 else 1)


def experiment(
    seed: int,
    true_s: Mapping[Setting, float],
    *,
    rounds: int = 40,
    margin: float = 0.1,
    noise: Noise = noisy,
) -> Trials:
    """The first of `true_s` is the control. Each block takes a second of the time that there is."""
    chance = random.Random(seed)
    clock = [0.0]

    def measure(setting: Setting, _: Figures | None) -> Measured:
        clock[0] += 1
        return Measured({TIME.key: true_s[setting] * noise(chance)})

    control, *candidates = true_s
    return Trials(
        control,
        candidates,
        Goal(TIME),
        [TIME],
        margin=margin,
        for_s=rounds * len(true_s),
        measure=measure,
        progress=lambda text: None,
        chance=chance,
        clock=lambda: clock[0],
    )
