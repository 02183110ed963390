"""The positions and labels of the marks of a time axis. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from headway.report import units


class Mark(NamedTuple):
    """A mark of the axis. `multiple` is its distance from zero in switch intervals; 0 if the axis
    is not divided by switch intervals."""

    at_ns: float
    label: str
    multiple: int = 0


def marks(
    begin_ns: int, end_ns: int, zero_ns: int, most: int, switch_interval_ns: int = 0
) -> list[Mark]:
    """At most about `most` marks, at round times since `zero_ns`; at multiples of the switch
    interval, if the axis is at least two intervals long."""
    lasts_ns = end_ns - begin_ns
    if lasts_ns <= 0 or most < 1:
        return []
    least_ns = lasts_ns / most
    by_intervals = 0 < switch_interval_ns * 2 <= lasts_ns
    if by_intervals:
        step_ns = switch_interval_ns * max(1.0, _round(least_ns / switch_interval_ns))
    else:
        step_ns = _round(least_ns)
    first = max(0, math.ceil((begin_ns - zero_ns) / step_ns - 1e-9))
    last = math.floor((end_ns - zero_ns) / step_ns + 1e-9)
    return [
        Mark(
            zero_ns + place * step_ns,
            _label(place * step_ns),
            round(place * step_ns / switch_interval_ns) if by_intervals else 0,
        )
        for place in range(first, last + 1)
    ]


def _round(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... (and their decimal fractions) that is at least `least`."""
    decade = 10.0 ** math.floor(math.log10(least))
    for step in (1, 2, 5):
        if step * decade >= least * (1 - 1e-9):
            return step * decade
    return 10 * decade


def _label(ns: float) -> str:
    if 0 < ns < 1000:
        return f"{ns:.3g} ns"
    return units.seconds(round(ns) / 1e9) if ns else "0"
