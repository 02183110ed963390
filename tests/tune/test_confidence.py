"""The intervals hold after every round, and the experiments that use them are honest."""

import math
import random

import pytest
from made_experiments import CONTROL, DEADLINE, PRIORITY, experiment

from headway.tune.confidence import effect, widths
from headway.tune.trials import Result

EXPERIMENTS = 200


def test_few_values_say_nothing_and_many_narrow_the_interval() -> None:
    assert widths(2, 0.05) == widths(3, 0.01) == math.inf
    found = [widths(count, 0.05) for count in range(4, 200)]
    assert found == sorted(found, reverse=True)
    # Wider than the interval of a single look, which is 1.96 / sqrt(n) for many values.
    assert 1.96 < found[-1] * math.sqrt(199) < 4


def test_equal_values_leave_an_interval_of_the_least_deviation() -> None:
    found = effect([0.0] * 20, 0.05)
    assert found.low < 1 == found.ratio < found.high < 1.02


def test_the_mean_is_in_all_intervals_of_an_experiment() -> None:
    chance = random.Random(1)
    missed = 0
    for _ in range(EXPERIMENTS):
        values = [chance.gauss(0.3, 0.5) for _ in range(40)]
        found = [effect(values[:count], 0.05) for count in range(2, 41)]
        missed += any(not each.low <= math.exp(0.3) <= each.high for each in found)
    assert 0 < missed <= 0.05 * EXPERIMENTS


@pytest.mark.parametrize("margin", [0.0, 0.1])
@pytest.mark.slow("simulates thousands of experiments")
def test_equal_candidates_have_a_winner_in_at_most_5_percent(margin: float) -> None:
    wins = 0
    for seed in range(EXPERIMENTS):
        trials = experiment(seed, {CONTROL: 1, PRIORITY: 1, DEADLINE: 1}, margin=margin)
        trials.run()
        wins += trials.outcome().result is Result.WINNER
    assert wins <= 0.05 * EXPERIMENTS


def test_a_known_effect_is_found() -> None:
    found = rounds = 0
    for seed in range(EXPERIMENTS):
        trials = experiment(seed, {CONTROL: 1, PRIORITY: 0.5, DEADLINE: 1})
        trials.run()
        winner = trials.outcome().winner
        found += winner is not None and winner.setting == PRIORITY
        rounds += trials.blocks[-1].round
    assert found >= 0.95 * EXPERIMENTS
    assert rounds / EXPERIMENTS < 20


def test_equal_candidates_become_equivalent() -> None:
    found = 0
    for seed in range(EXPERIMENTS):
        trials = experiment(
            seed,
            {CONTROL: 1, PRIORITY: 1, DEADLINE: 1.5},
            noise=lambda it: it.lognormvariate(0, 0.05),
        )
        trials.run()
        found += trials.outcome().result is Result.EQUIVALENT
    assert found >= 0.95 * EXPERIMENTS
