"""Intervals of predictions: what simulations leave open, and how far they may be from reality.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high
from typing import NamedTuple

# The error of a simulated change, beyond everything else that an interval covers, as a share of the
# prediction. Measured by bench/what_if.py.
MODEL_ERROR = 0.10
# The share of a configuration's simulations that lies within the interval.
COVERED = 0.90
# A recording is reproduced if its simulations are within this share of it.
REPRODUCED = 0.15


class Interval(NamedTuple):
    low: float
    middle: float
    high: float

    def has(self, value: float) -> bool:
        return self.low <= value <= self.high


def covered(in_order: Sequence[float]) -> tuple[float, float, float]:
    cut = round(len(in_order) * (1 - COVERED) / 2)
    return in_order[cut], median_high(in_order), in_order[-1 - cut]


def widened(interval: Interval) -> Interval:
    low, middle, high = interval
    return Interval(low / (1 + MODEL_ERROR), middle, high * (1 + MODEL_ERROR))


def hull(intervals: Sequence[Interval]) -> Interval:
    return Interval(
        min(each.low for each in intervals),
        sum(each.middle for each in intervals) / len(intervals),
        max(each.high for each in intervals),
    )
