"""Medians with confidence intervals. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

RESAMPLES = 1_000
CONFIDENCE = 0.95
SEED = 20091025
# A row whose confidence interval is wider than this share of its median says so.
UNSTABLE_WIDTH = 0.2


class Interval(NamedTuple):
    median: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The median, and its percentile bootstrap interval."""
    chance = random.Random(SEED)
    count = len(values)
    medians = sorted(median(chance.choices(values, k=count)) for _ in range(RESAMPLES))
    tail = round((1 - CONFIDENCE) / 2 * RESAMPLES)
    return Interval(median(values), medians[tail], medians[-1 - tail])


def is_unstable(values: Sequence[float]) -> bool:
    found = interval(values)
    return found.high - found.low > UNSTABLE_WIDTH * abs(found.median)


def histogram(samples_s: Sequence[float]) -> dict[str, Any]:
    """A HIST of schema 1."""
    raise NotImplementedError
